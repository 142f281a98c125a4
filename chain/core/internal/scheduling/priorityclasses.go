package scheduling

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

const (
	// systemPrefix is the name prefix that is reserved for system priority classes.
	systemPrefix = "system-"
	// MaxPriority is the highest value of a priority class that is not a system class.
	MaxPriority = 1_000_000_000
)

// SystemClasses returns the priority classes that every cluster has.
func SystemClasses() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, description string) *schedulingv1.PriorityClass {
		c := &schedulingv1.PriorityClass{
			Value:            value,
			Description:      description,
			PreemptionPolicy: new(corev1.PreemptLowerPriority),
		}
		c.Name = name
		return c
	}
	return []*schedulingv1.PriorityClass{
		class("system-node-critical", 2*MaxPriority+1000, "For pods that their node cannot do without."),
		class("system-cluster-critical", 2*MaxPriority,
			"For pods that the cluster cannot do without, on whichever node."),
	}
}

// PriorityClasses declares priorityclasses.
func PriorityClasses() *kind.Kind[*schedulingv1.PriorityClass] {
	return &kind.Kind[*schedulingv1.PriorityClass]{
		Plural:        "priorityclasses",
		ShortNames:    []string{"pc"},
		ClusterScoped: true,
		Default: func(c *schedulingv1.PriorityClass) {
			if c.PreemptionPolicy == nil {
				c.PreemptionPolicy = new(corev1.PreemptLowerPriority)
			}
		},
		Validate: validatePriorityClass,
		ValidateUpdate: func(_ context.Context, c, old *schedulingv1.PriorityClass) field.ErrorList {
			errs := apivalidation.ValidateImmutableField(c.PreemptionPolicy, old.PreemptionPolicy,
				field.NewPath("preemptionPolicy"))
			if c.Value != old.Value {
				errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
			}
			return errs
		},
		Table: kind.Table[*schedulingv1.PriorityClass]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Value", Type: "integer", Description: "The priority of pods of the class."},
				{
					Name:        "Global-Default",
					Type:        "boolean",
					Description: "Whether the class is the default for pods without a class.",
				},
				kind.AgeColumn(),
				{Name: "PreemptionPolicy", Description: "Whether pods of the class preempt others."},
			},
			Row: func(c *schedulingv1.PriorityClass) []any {
				policy := ""
				if c.PreemptionPolicy != nil {
					policy = string(*c.PreemptionPolicy)
				}
				return []any{c.Name, int64(c.Value), c.GlobalDefault, kind.Age(c), policy}
			},
		},
		// The generation is set on creation and never changes.
		SameGeneration: func(_, _ *schedulingv1.PriorityClass) bool { return true },
		Wrap:           func(s *kind.Storage) rest.Storage { return classStorage{s} },
	}
}

// classStorage refuses to delete the system classes.
type classStorage struct{ *kind.Storage }

func (s classStorage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	for _, c := range SystemClasses() {
		if c.Name == name {
			return nil, false, apierrors.NewForbidden(s.DefaultQualifiedResource, name,
				errors.New("system priority classes may not be deleted"))
		}
	}
	return s.Storage.Delete(ctx, name, validate, options)
}

func validatePriorityClass(_ context.Context, c *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	switch {
	case strings.HasPrefix(c.Name, systemPrefix):
		if !isSystemClass(c) {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"names that start with "+systemPrefix+" are reserved for the system"))
		}
	case c.Value > MaxPriority:
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("must not be greater than %d", MaxPriority)))
	}
	policies := []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}
	switch p := c.PreemptionPolicy; {
	case p == nil || *p == policies[0] || *p == policies[1]:
	case *p == "":
		errs = append(errs, field.Required(field.NewPath("preemptionPolicy"),
			"must be a preemption policy"))
	default:
		errs = append(errs, field.NotSupported(field.NewPath("preemptionPolicy"), *p, policies))
	}
	return errs
}

func isSystemClass(c *schedulingv1.PriorityClass) bool {
	for _, known := range SystemClasses() {
		if c.Name == known.Name {
			return c.Value == known.Value && !c.GlobalDefault
		}
	}
	return false
}
