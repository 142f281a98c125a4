package flowcontrol

import (
	"cmp"
	"context"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

const (
	defaultPrecedence = 1000
	// exemptPrecedence comes before all others. Only the flow schema exempt may use it.
	exemptPrecedence = 1
)

var (
	distinguishers = sets.New(flowcontrolv1.FlowDistinguisherMethodByNamespaceType,
		flowcontrolv1.FlowDistinguisherMethodByUserType)
	subjectKinds = sets.New(flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount,
		flowcontrolv1.SubjectKindUser)
	verbs = sets.New("create", "delete", "deletecollection", "get", "list", "patch", "proxy",
		"update", "watch")
)

// FlowSchemas declares flowschemas.
func FlowSchemas() *kind.Kind[*flowcontrolv1.FlowSchema] {
	type T = *flowcontrolv1.FlowSchema
	return &kind.Kind[T]{
		Plural:        "flowschemas",
		ClusterScoped: true,
		Default: func(f T) {
			if f.Spec.MatchingPrecedence == 0 {
				f.Spec.MatchingPrecedence = defaultPrecedence
			}
		},
		Validate: validateFlowSchema,
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "PriorityLevel", Description: "Priority level that the requests belong to."},
				{
					Name:        "MatchingPrecedence",
					Description: "Requests are matched against schemas in ascending order of precedence.",
				},
				{Name: "DistinguisherMethod", Description: "Attribute that separates the flows of the schema."},
				kind.AgeColumn(),
				{Name: "MissingPL", Description: "Whether the priority level does not exist."},
			},
			Row: func(f T) []any {
				distinguisher, missing := "<none>", "?"
				if m := f.Spec.DistinguisherMethod; m != nil {
					distinguisher = string(m.Type)
				}
				for _, c := range f.Status.Conditions {
					if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
						missing = string(c.Status)
					}
				}
				level := f.Spec.PriorityLevelConfiguration.Name
				return []any{
					f.Name, level, int64(f.Spec.MatchingPrecedence), distinguisher, kind.Age(f), missing,
				}
			},
		},
		Status: &kind.Status[T]{
			Prepare: func(_ context.Context, f, old T) {
				restoreMetadata(&f.ObjectMeta, old.ObjectMeta)
			},
			ResetFields: []string{"metadata", "spec"},
			Validate: func(_ context.Context, f, _ T) field.ErrorList {
				return conditions(f.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) string {
					return string(c.Type)
				})
			},
		},
		Generation: true,
		Wrap:       func(s *kind.Storage) rest.Storage { return schemaStorage{s} },
		Quirks:     kind.Quirks{NameOnUpdate: true},
	}
}

// schemaStorage sorts the schemas in tables by matching precedence.
type schemaStorage struct{ *kind.Storage }

func (s schemaStorage) ConvertToTable(
	ctx context.Context, obj, options runtime.Object,
) (*metav1.Table, error) {
	if in, ok := obj.(*flowcontrolv1.FlowSchemaList); ok {
		list := *in
		list.Items = slices.Clone(in.Items)
		slices.SortFunc(list.Items, func(a, b flowcontrolv1.FlowSchema) int {
			return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence),
				cmp.Compare(a.Name, b.Name))
		})
		obj = &list
	}
	return s.Storage.ConvertToTable(ctx, obj, options)
}

func validateFlowSchema(_ context.Context, f *flowcontrolv1.FlowSchema) field.ErrorList {
	spec, at := &f.Spec, field.NewPath("spec")
	var errs field.ErrorList
	precedence := at.Child("matchingPrecedence")
	switch {
	case spec.MatchingPrecedence <= 0:
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence, "must be positive"))
	case spec.MatchingPrecedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence,
			"must not be greater than 10000"))
	case spec.MatchingPrecedence == exemptPrecedence && f.Name != flowcontrolv1.FlowSchemaNameExempt:
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence,
			"1 is reserved for the flow schema exempt"))
	}
	if m := spec.DistinguisherMethod; m != nil && !distinguishers.Has(m.Type) {
		errs = append(errs, field.NotSupported(at.Child("distinguisherMethod", "type"), m.Type,
			sets.List(distinguishers)))
	}
	level := at.Child("priorityLevelConfiguration", "name")
	if name := spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, rules.Invalid(level, name,
			apivalidation.NameIsDNSSubdomain(name, false))...)
	}
	for i := range spec.Rules {
		errs = append(errs, validateRules(&spec.Rules[i], at.Child("rules").Index(i))...)
	}
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		if fixed.Name == f.Name && !equality.Semantic.DeepEqual(fixed.Spec, *spec) {
			errs = append(errs, field.Invalid(at, *spec, "the spec of "+f.Name+" is fixed"))
		}
	}
	return append(errs, conditions(f.Status.Conditions,
		func(c flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) })...)
}

func validateRules(r *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "at least one subject is required"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateSubject(&r.Subjects[i], at.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at,
			"at least one of resourceRules and nonResourceRules is required"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateResourceRule(&r.ResourceRules[i],
			at.Child("resourceRules").Index(i))...)
	}
	for i := range r.NonResourceRules {
		errs = append(errs, validateNonResourceRule(&r.NonResourceRules[i],
			at.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

// validateSubject requires the one of user, group and serviceAccount that the subject's kind names,
// and forbids the others.
func validateSubject(s *flowcontrolv1.Subject, at *field.Path) field.ErrorList {
	if !subjectKinds.Has(s.Kind) {
		return field.ErrorList{field.NotSupported(at.Child("kind"), s.Kind, sets.List(subjectKinds))}
	}
	var errs field.ErrorList
	for _, part := range []struct {
		kind  flowcontrolv1.SubjectKind
		field string
		given bool
	}{
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil},
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil},
	} {
		switch {
		case part.kind == s.Kind && !part.given:
			errs = append(errs, field.Required(at.Child(part.field), "required for this kind of subject"))
		case part.kind != s.Kind && part.given:
			errs = append(errs, field.Forbidden(at.Child(part.field),
				"may not be set for this kind of subject"))
		}
	}
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil && s.User.Name == "":
		errs = append(errs, field.Required(at.Child("user", "name"), ""))
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil && s.Group.Name == "":
		errs = append(errs, field.Required(at.Child("group", "name"), ""))
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		errs = append(errs, validateServiceAccount(s.ServiceAccount, at.Child("serviceAccount"))...)
	}
	return errs
}

func validateServiceAccount(
	s *flowcontrolv1.ServiceAccountSubject, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	switch s.Name {
	case "":
		errs = append(errs, field.Required(at.Child("name"), ""))
	case flowcontrolv1.NameAll:
	default:
		errs = append(errs, rules.Invalid(at.Child("name"), s.Name,
			apivalidation.ValidateServiceAccountName(s.Name, false))...)
	}
	if s.Namespace == "" {
		return append(errs, field.Required(at.Child("namespace"), ""))
	}
	return append(errs, rules.Invalid(at.Child("namespace"), s.Namespace,
		apivalidation.ValidateNamespaceName(s.Namespace, false))...)
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, at *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, at.Child("verbs"))
	errs = append(errs, wildcardAlone(r.APIGroups, at.Child("apiGroups"))...)
	errs = append(errs, wildcardAlone(r.Resources, at.Child("resources"))...)
	at = at.Child("namespaces")
	switch {
	case len(r.Namespaces) == 0 && !r.ClusterScope:
		errs = append(errs, field.Required(at,
			"at least one namespace is required unless clusterScope is true"))
	case len(r.Namespaces) == 0:
	case slices.Contains(r.Namespaces, flowcontrolv1.NamespaceEvery):
		errs = append(errs, wildcardAlone(r.Namespaces, at)...)
	default:
		for i, namespace := range r.Namespaces {
			errs = append(errs, rules.Invalid(at.Index(i), namespace,
				apivalidation.ValidateNamespaceName(namespace, false))...)
		}
	}
	return errs
}

func validateNonResourceRule(
	r *flowcontrolv1.NonResourcePolicyRule, at *field.Path,
) field.ErrorList {
	errs := validateVerbs(r.Verbs, at.Child("verbs"))
	at = at.Child("nonResourceURLs")
	errs = append(errs, wildcardAlone(r.NonResourceURLs, at)...)
	if slices.Contains(r.NonResourceURLs, flowcontrolv1.NonResourceAll) {
		return errs
	}
	for i, url := range r.NonResourceURLs {
		if msg := badURL(url); msg != "" {
			errs = append(errs, field.Invalid(at.Index(i), url, msg))
		}
	}
	return errs
}

// badURL returns what is wrong with a path to match requests against, such as "/healthz/*", or ""
// if the path is valid.
func badURL(url string) string {
	switch {
	case url == "":
		return "must not be empty"
	case url == "/":
		return ""
	case !strings.HasPrefix(url, "/"):
		return "must start with /"
	case strings.Contains(url, " "):
		return "must not contain spaces"
	case strings.Contains(url, "//"):
		return "must not contain empty segments"
	case strings.Contains(strings.TrimSuffix(url, "/*"), "*"):
		return "may have a wildcard only as its last segment"
	}
	return ""
}

func validateVerbs(list []string, at *field.Path) field.ErrorList {
	if errs := wildcardAlone(list, at); errs != nil || slices.Contains(list, flowcontrolv1.VerbAll) {
		return errs
	}
	if !verbs.HasAll(list...) {
		return field.ErrorList{field.NotSupported(at, list, sets.List(verbs))}
	}
	return nil
}

// wildcardAlone requires a non-empty list in which "*", if it is present, is the only element.
func wildcardAlone(list []string, at *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(list) > 1 && slices.Contains(list, "*") {
		return field.ErrorList{field.Invalid(at, list, "* must be the only entry")}
	}
	return nil
}

// restoreMetadata discards the changes of a status update to the metadata, except for
// managedFields.
func restoreMetadata(meta *metav1.ObjectMeta, old metav1.ObjectMeta) {
	old.ManagedFields = meta.ManagedFields
	*meta = old
}

// conditions checks that each condition of a status has a type and that the types are distinct.
func conditions[C any](list []C, typeOf func(C) string) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, c := range list {
		at, name := field.NewPath("status", "conditions").Index(i).Child("type"), typeOf(c)
		if name == "" {
			errs = append(errs, field.Required(at, ""))
		} else if seen.Has(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen.Insert(name)
	}
	return errs
}
