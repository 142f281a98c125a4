package scheduling

import (
	"fmt"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

type (
	podGroupTemplate  = schedulingv1beta1.PodGroupTemplate
	compositeTemplate = schedulingv1beta1.CompositePodGroupTemplate
)

// templates holds the children of a workload or of a composite template.
type templates struct {
	pods   []podGroupTemplate
	groups []compositeTemplate
}

func children(s *schedulingv1beta1.WorkloadSpec) templates {
	return templates{s.PodGroupTemplates, s.CompositePodGroupTemplates}
}

// priority is the priority of a template, comparable with ==.
type priority struct {
	class string
	value int32
	set   bool
}

func priorityOf(class string, value *int32) priority {
	return priority{class: class, value: ptr.Deref(value, 0), set: value != nil}
}

func podGroupTemplateName(t *podGroupTemplate) string   { return t.Name }
func compositeTemplateName(t *compositeTemplate) string { return t.Name }

// validateHierarchy checks the tree as a whole: names are unique, the depth is limited, every
// composite template has children, and all templates have the same priority.
func validateHierarchy(s *schedulingv1beta1.WorkloadSpec, at *field.Path) field.ErrorList {
	names := sets.New[string]()
	for _, t := range s.PodGroupTemplates {
		names.Insert(t.Name)
	}
	errs := validateNames(s.CompositePodGroupTemplates, at, names)
	groups := at.Child("compositePodGroupTemplates")
	for i, t := range s.CompositePodGroupTemplates {
		// Pod group templates are one more level.
		if limit := schedulingv1beta1.WorkloadMaxTreeDepth; depth(t) > limit-1 {
			errs = append(errs, field.Invalid(groups.Index(i), field.OmitValueType{},
				fmt.Sprintf("must not be deeper than %d levels", limit)))
		}
	}
	var first *priority
	if !samePriority(children(s), &first) {
		errs = append(errs, field.Invalid(at, field.OmitValueType{},
			"all templates must have the same priority and priorityClassName"))
	}
	return append(errs, validateParents(s.CompositePodGroupTemplates, at)...)
}

// validateNames reports names that occur in more than one list. The generated validation reports
// duplicates within a list.
func validateNames(
	groups []compositeTemplate, at *field.Path, names sets.Set[string],
) field.ErrorList {
	errs := noneOf(groups, at.Child("compositePodGroupTemplates"), compositeTemplateName, names)
	for i, t := range groups {
		at := at.Child("compositePodGroupTemplates").Index(i)
		errs = append(errs, noneOf(t.PodGroupTemplates, at.Child("podGroupTemplates"),
			podGroupTemplateName, names)...)
		errs = append(errs, validateNames(t.CompositePodGroupTemplates, at, names)...)
	}
	return errs
}

func noneOf[T any](
	list []T, at *field.Path, name func(*T) string, names sets.Set[string],
) field.ErrorList {
	var errs field.ErrorList
	own := sets.New[string]()
	for i := range list {
		n := name(&list[i])
		if names.Has(n) {
			errs = append(errs, field.Duplicate(at.Index(i).Child("name"), n))
		}
		own.Insert(n)
	}
	names.Insert(own.UnsortedList()...)
	return errs
}

func depth(t compositeTemplate) int {
	deepest := 0
	for _, child := range t.CompositePodGroupTemplates {
		deepest = max(deepest, depth(child))
	}
	return deepest + 1
}

// samePriority reports whether all templates have the same priority. The first one it sees is
// stored in first.
func samePriority(t templates, first **priority) bool {
	check := func(p priority) bool {
		if *first == nil {
			*first = &p
		}
		return p == **first
	}
	for _, p := range t.pods {
		if !check(priorityOf(p.PriorityClassName, p.Priority)) {
			return false
		}
	}
	for _, g := range t.groups {
		if !check(priorityOf(g.PriorityClassName, g.Priority)) ||
			!samePriority(templates{g.PodGroupTemplates, g.CompositePodGroupTemplates}, first) {
			return false
		}
	}
	return true
}

func validateParents(groups []compositeTemplate, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range groups {
		at := at.Child("compositePodGroupTemplates").Index(i)
		if len(t.PodGroupTemplates) == 0 && len(t.CompositePodGroupTemplates) == 0 {
			errs = append(errs, field.Invalid(at, t.Name, "must have at least one child template"))
		}
		errs = append(errs, validateParents(t.CompositePodGroupTemplates, at)...)
	}
	return errs
}

// dropDisabledTemplateFields clears fields of features that are off, unless old uses them.
func dropDisabledTemplateFields(s, old *schedulingv1beta1.WorkloadSpec) {
	var constraints, claims, preemption bool
	eachTemplate(children(old), func(p *podGroupTemplate) {
		constraints = constraints || p.SchedulingConstraints != nil
		claims = claims || len(p.ResourceClaims) > 0
		preemption = preemption || p.PreemptionPolicy != nil
	}, func(g *compositeTemplate) { preemption = preemption || g.PreemptionPolicy != nil })
	eachTemplate(children(s), func(p *podGroupTemplate) {
		if !constraints {
			p.SchedulingConstraints = nil
		}
		if !claims {
			p.ResourceClaims = nil
		}
		if !preemption {
			p.PreemptionPolicy = nil
		}
	}, func(g *compositeTemplate) {
		if !preemption {
			g.PreemptionPolicy = nil
		}
	})
}

func eachTemplate(t templates, pods func(*podGroupTemplate), groups func(*compositeTemplate)) {
	for i := range t.pods {
		pods(&t.pods[i])
	}
	for i := range t.groups {
		g := &t.groups[i]
		groups(g)
		eachTemplate(templates{g.PodGroupTemplates, g.CompositePodGroupTemplates}, pods, groups)
	}
}
