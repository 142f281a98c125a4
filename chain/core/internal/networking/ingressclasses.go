package networking

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

const maxControllerLength = 250

// IngressClasses declares ingressclasses.
func IngressClasses() *kind.Kind[*networkingv1.IngressClass] {
	return &kind.Kind[*networkingv1.IngressClass]{
		Plural:         "ingressclasses",
		ClusterScoped:  true,
		Default:        defaultIngressClass,
		Validate:       validateIngressClass,
		ValidateUpdate: validateIngressClassUpdate,
		Table: kind.Table[*networkingv1.IngressClass]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Controller", Description: "The controller that serves ingresses of this class."},
				{Name: "Parameters", Description: "Object that holds further settings for the controller."},
				kind.AgeColumn(),
			},
			Row: func(c *networkingv1.IngressClass) []any {
				parameters := "<none>"
				if p := c.Spec.Parameters; p != nil {
					parameters = p.Kind
					if p.APIGroup != nil {
						parameters += "." + *p.APIGroup
					}
					parameters += "/" + p.Name
				}
				name := c.Name
				if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
					name += " (default)"
				}
				return []any{name, c.Spec.Controller, parameters, kind.Age(c)}
			},
		},
		Generation: true,
		Quirks:     kind.Quirks{NameOnUpdate: true},
	}
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if p := c.Spec.Parameters; p != nil && p.Scope == nil {
		p.Scope = new(networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func validateIngressClass(_ context.Context, c *networkingv1.IngressClass) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "controller")
	if c.Spec.Controller == "" {
		errs = append(errs, field.Required(path, ""))
	} else {
		if len(c.Spec.Controller) > maxControllerLength {
			errs = append(errs, field.TooLong(path, "" /* not shown */, maxControllerLength))
		}
		errs = append(errs, validation.IsDomainPrefixedPath(path, c.Spec.Controller)...)
	}
	if c.Spec.Parameters != nil {
		errs = append(errs, validateParameters(c.Spec.Parameters, field.NewPath("spec", "parameters"))...)
	}
	return errs
}

func validateIngressClassUpdate(
	ctx context.Context, c, old *networkingv1.IngressClass,
) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(c.Spec.Controller, old.Spec.Controller,
		field.NewPath("spec", "controller"))
	return append(errs, validateIngressClass(ctx, c)...)
}

func validateParameters(
	p *networkingv1.IngressClassParametersReference, path *field.Path,
) field.ErrorList {
	errs := validateReference(p.APIGroup, p.Kind, p.Name, path)
	namespace := path.Child("namespace")
	switch {
	case p.Scope == nil:
		errs = append(errs, field.Required(path.Child("scope"), ""))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			errs = append(errs, field.Required(namespace, "required when scope is Namespace"))
			break
		}
		errs = append(errs, rules.Invalid(namespace, *p.Namespace,
			apivalidation.ValidateNamespaceName(*p.Namespace, false))...)
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(namespace, "may not be set when scope is Cluster"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("scope"), *p.Scope, []string{
			networkingv1.IngressClassParametersReferenceScopeCluster,
			networkingv1.IngressClassParametersReferenceScopeNamespace,
		}))
	}
	return errs
}

// validateReference checks a reference to an object of any kind. A nil group is the core group;
// kind and name are required.
func validateReference(group *string, kind, name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = append(errs, rules.Invalid(path.Child("apiGroup"), *group,
			validation.IsDNS1123Subdomain(*group))...)
	}
	errs = append(errs, validateSegment(kind, path.Child("kind"))...)
	return append(errs, validateSegment(name, path.Child("name"))...)
}

// validateSegment checks a required value that becomes a segment of a URL path.
func validateSegment(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rules.Invalid(path, value, content.IsPathSegmentName(value))
}
