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

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

var errNoVariables = errors.New("no CEL compiler for variables is available")

// ParamAccess prevents the writers of policies and bindings from reading, by way of the API server,
// parameters that they may not read themselves. As in kube-apiserver, a user who names a parameter
// kind must be allowed to get all objects of that kind, and a user who refers to parameters must be
// allowed to get or list them. Members of system:masters may do everything.
type ParamAccess struct {
	// Authorizer makes the decisions. If it is nil, everything is allowed.
	Authorizer authorizer.UnconditionalAuthorizer
	// Resource returns the resource of a kind. If Resource is nil or fails, the user needs
	// permission for all resources of the group version.
	Resource func(schema.GroupVersionKind) (schema.GroupVersionResource, error)
	// ValidatingParamKind and MutatingParamKind return spec.paramKind of a binding's policy. If the
	// function is nil or fails, or the policy has no parameter kind, the user needs permission for
	// all resources of all groups.
	ValidatingParamKind func(ctx context.Context, policy string) (*admissionv1.ParamKind, error)
	MutatingParamKind   func(ctx context.Context, policy string) (*admissionv1.ParamKind, error)
}

// kindChanged authorizes the use of a policy's parameter kind if it has changed.
func (a ParamAccess) kindChanged(
	ctx context.Context, kind, old *admissionv1.ParamKind,
) field.ErrorList {
	if kind == nil || old != nil && *kind == *old {
		return nil
	}
	attributes := authorizer.AttributesRecord{Verb: "get", Name: "*", Namespace: "*"}
	return a.check(ctx, attributes, kind, field.NewPath("spec", "paramKind"))
}

// refChanged authorizes the use of a binding's parameters if the reference or the policy has
// changed.
func (a ParamAccess) refChanged(
	ctx context.Context, ref, old *admissionv1.ParamRef, samePolicy bool,
	kind func() *admissionv1.ParamKind,
) field.ErrorList {
	if ref == nil || a.Authorizer == nil ||
		samePolicy && old != nil && equality.Semantic.DeepEqual(ref, old) {
		return nil
	}
	attributes := authorizer.AttributesRecord{Verb: "get", Name: ref.Name, Namespace: ref.Namespace}
	if ref.Name == "" {
		attributes.Verb = "list"
	}
	return a.check(ctx, attributes, kind(), field.NewPath("spec", "paramRef"))
}

func (a ParamAccess) check(
	ctx context.Context, attributes authorizer.AttributesRecord, kind *admissionv1.ParamKind,
	at *field.Path,
) field.ErrorList {
	if a.Authorizer == nil {
		return nil
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return field.ErrorList{
			field.Forbidden(at, "cannot authorize the use of parameters: the request has no user"),
		}
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
		return field.ErrorList{field.Forbidden(at,
			fmt.Sprintf("user %q is not allowed to %s these parameters", u.GetName(), attributes.Verb))}
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
			errs = append(errs, rules.Invalid(version, gv.Group,
				validation.IsDNS1123Subdomain(gv.Group))...)
		}
		errs = append(errs, rules.Invalid(version, gv.Version,
			validation.IsDNS1035Label(gv.Version))...)
	}
	if k.Kind == "" {
		return append(errs, field.Required(at, ""))
	}
	for _, msg := range validation.IsDNS1035Label(strings.ToLower(k.Kind)) {
		errs = append(errs, field.Invalid(at, k.Kind, "may have upper case letters, but otherwise "+msg))
	}
	return errs
}

func validateParamRef(r *admissionv1.ParamRef, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if r.Name != "" {
		errs = append(errs, rules.Invalid(at.Child("name"), r.Name,
			path.ValidatePathSegmentName(r.Name, false))...)
	}
	if r.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(r.Selector,
			metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	}
	switch {
	case r.Name != "" && r.Selector != nil:
		const both = "name and selector are mutually exclusive"
		errs = append(errs, field.Forbidden(at.Child("name"), both),
			field.Forbidden(at.Child("selector"), both))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(at, "must specify a name or a selector"))
	}
	action := at.Child("parameterNotFoundAction")
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(action, ""))
	}
	return append(errs, oneOf(r.ParameterNotFoundAction,
		sets.New(admissionv1.AllowAction, admissionv1.DenyAction), action)...)
}
