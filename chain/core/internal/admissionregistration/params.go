package admissionregistration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var errNoVariables = errors.New("no compiler for variables")

// ParamAccess keeps writers of policies and bindings from reading, through the API server, parameters that they may not read themselves.
// As in kube-apiserver, whoever names a kind of parameters must be allowed to get all of them, and whoever refers to some, to get or list
// those; members of system:masters may everything.
type ParamAccess struct {
	// Authorizer decides; nil allows everything.
	Authorizer authorizer.UnconditionalAuthorizer
	// Resource finds the resource of a kind. Nil, or where it finds none, all resources of the group and version are meant.
	Resource func(schema.GroupVersionKind) (schema.GroupVersionResource, error)
	// ValidatingParamKind and MutatingParamKind get the spec.paramKind of a policy, for bindings. Nil, or where there is no such policy
	// or kind, all resources of all groups are meant.
	ValidatingParamKind func(ctx context.Context, policy string) (*admissionv1.ParamKind, error)
	MutatingParamKind   func(ctx context.Context, policy string) (*admissionv1.ParamKind, error)
}

// kindChanged checks a policy's parameter kind, unless it is the old one.
func (a ParamAccess) kindChanged(ctx context.Context, kind, old *admissionv1.ParamKind) field.ErrorList {
	if kind == nil || old != nil && *kind == *old {
		return nil
	}
	attributes := authorizer.AttributesRecord{Verb: "get", Name: "*", Namespace: "*"}
	return a.check(ctx, attributes, kind, field.NewPath("spec", "paramKind"))
}

// refChanged checks a binding's reference, unless it and the policy are the old ones.
func (a ParamAccess) refChanged(ctx context.Context, ref, old *admissionv1.ParamRef, samePolicy bool, kind func() *admissionv1.ParamKind) field.ErrorList {
	if ref == nil || a.Authorizer == nil || samePolicy && old != nil && equality.Semantic.DeepEqual(ref, old) {
		return nil
	}
	attributes := authorizer.AttributesRecord{Verb: "get", Name: ref.Name, Namespace: ref.Namespace}
	if ref.Name == "" {
		attributes.Verb = "list"
	}
	return a.check(ctx, attributes, kind(), field.NewPath("spec", "paramRef"))
}

func (a ParamAccess) check(ctx context.Context, attributes authorizer.AttributesRecord, kind *admissionv1.ParamKind, at *field.Path) field.ErrorList {
	if a.Authorizer == nil {
		return nil
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return field.ErrorList{field.Forbidden(at, "who refers to parameters is unknown")}
	}
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	attributes.User, attributes.ResourceRequest = u, true
	attributes.APIGroup, attributes.APIVersion, attributes.Resource = "*", "*", "*"
	if kind != nil {
		if gv, err := schema.ParseGroupVersion(kind.APIVersion); err == nil {
			attributes.APIGroup, attributes.APIVersion = gv.Group, gv.Version
			if a.Resource != nil {
				if gvr, err := a.Resource(gv.WithKind(kind.Kind)); err == nil {
					attributes.Resource = gvr.Resource
				}
			}
		}
	}
	decision, _, err := a.Authorizer.Authorize(ctx, attributes)
	switch {
	case err != nil:
		return field.ErrorList{field.Forbidden(at, err.Error())}
	case decision != authorizer.DecisionAllow:
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("user %q is not allowed to %s these parameters", u.GetName(), attributes.Verb))}
	}
	return nil
}

func validateParamKind(k *admissionv1.ParamKind, at *field.Path) field.ErrorList {
	if k == nil {
		return nil
	}
	var errs field.ErrorList
	at, version := at.Child("kind"), at.Child("apiVersion")
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(version, ""))
	case err != nil:
		errs = append(errs, field.Invalid(version, k.APIVersion, err.Error()))
	default:
		if gv.Group != "" {
			for _, msg := range validation.IsDNS1123Subdomain(gv.Group) {
				errs = append(errs, field.Invalid(version, gv.Group, msg))
			}
		}
		for _, msg := range validation.IsDNS1035Label(gv.Version) {
			errs = append(errs, field.Invalid(version, gv.Version, msg))
		}
	}
	if k.Kind == "" {
		return append(errs, field.Required(at, ""))
	}
	for _, msg := range validation.IsDNS1035Label(strings.ToLower(k.Kind)) {
		errs = append(errs, field.Invalid(at, k.Kind, "but for upper case: "+msg))
	}
	return errs
}

func validateParamRef(r *admissionv1.ParamRef, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if r.Name != "" {
		for _, msg := range path.ValidatePathSegmentName(r.Name, false) {
			errs = append(errs, field.Invalid(at.Child("name"), r.Name, msg))
		}
	}
	if r.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(r.Selector, metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	}
	switch {
	case r.Name != "" && r.Selector != nil:
		const both = "give either a name or a selector"
		errs = append(errs, field.Forbidden(at.Child("name"), both), field.Forbidden(at.Child("selector"), both))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(at, "give a name or a selector"))
	}
	action := at.Child("parameterNotFoundAction")
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(action, ""))
	}
	return append(errs, oneOf(r.ParameterNotFoundAction, sets.New(admissionv1.AllowAction, admissionv1.DenyAction), action)...)
}
