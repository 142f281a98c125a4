package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// priority (Priority) resolves the priority class of a pod or pod group to a number, and allows
// only one class to be the default.
type priority struct {
	*admission.Handler
	plugin.WantsClient
	plugin.Lists[schedulingv1.PriorityClass]
}

func newPriority() admission.Interface {
	return &priority{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

func (p *priority) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if a.GetOperation() == admission.Create && a.GetSubresource() == "" {
		switch g := a.GetObject().(type) {
		case *schedulingv1beta1.PodGroup:
			_, err := p.resolve(ctx, a, &g.Spec.PriorityClassName, &g.Spec.Priority)
			return err
		case *schedulingv1alpha3.CompositePodGroup:
			_, err := p.resolve(ctx, a, &g.Spec.PriorityClassName, &g.Spec.Priority)
			return err
		}
	}
	pod, ok, err := plugin.Object[*corev1.Pod](a, pods)
	if !ok {
		return err
	}
	if a.GetOperation() == admission.Update {
		old, err := plugin.Cast[*corev1.Pod](a.GetOldObject())
		if err != nil {
			return err
		}
		// A client that does not know the fields must not remove them.
		if pod.Spec.Priority == nil {
			pod.Spec.Priority = old.Spec.Priority
		}
		if pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
		}
		return nil
	}
	class, err := p.resolve(ctx, a, &pod.Spec.PriorityClassName, &pod.Spec.Priority)
	if err != nil {
		return err
	}
	policy := corev1.PreemptLowerPriority
	if class.PreemptionPolicy != nil {
		policy = *class.PreemptionPolicy
	}
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy != policy {
		return plugin.Forbid(a,
			"spec.preemptionPolicy is %s, but the pod's priority class has %s: omit the field",
			*pod.Spec.PreemptionPolicy, policy)
	}
	pod.Spec.PreemptionPolicy = &policy
	return nil
}

// resolve looks up the named class, or the default class if name is empty, and sets name and value
// accordingly.
func (p *priority) resolve(
	ctx context.Context, a admission.Attributes, name *string, value **int32,
) (*schedulingv1.PriorityClass, error) {
	class, err := p.of(ctx, a, *name)
	if err != nil {
		return nil, err
	}
	if *value != nil && **value != class.Value {
		return nil, plugin.Forbid(a,
			"spec.priority is %d, but the priority class has the value %d: omit the field",
			**value, class.Value)
	}
	*name, *value = class.Name, new(class.Value)
	return class, nil
}

// of returns the priority class with the given name. If name is empty, it returns the default
// class, or an empty class with the value 0 if there is no default.
func (p *priority) of(
	ctx context.Context, a admission.Attributes, name string,
) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		class, err := p.Client.SchedulingV1().PriorityClasses().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, plugin.Forbid(a, "no PriorityClass with name %s was found", name)
		}
		if err != nil {
			return nil, admission.NewForbidden(a, err)
		}
		return class, nil
	}
	classes, err := p.classes(ctx)
	if err != nil {
		return nil, admission.NewForbidden(a, err)
	}
	chosen := &schedulingv1.PriorityClass{}
	found := false
	for i := range classes {
		c := &classes[i]
		// of defaults created at the same time, the lowest
		if c.GlobalDefault && (!found || c.Value < chosen.Value) {
			chosen, found = c, true
		}
	}
	return chosen, nil
}

func (p *priority) classes(ctx context.Context) ([]schedulingv1.PriorityClass, error) {
	return p.List(ctx, "priorityclasses", func() ([]schedulingv1.PriorityClass, error) {
		list, err := p.Client.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	})
}

func (p *priority) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	class, ok, err := plugin.Object[*schedulingv1.PriorityClass](a,
		schedulingv1.Resource("priorityclasses"))
	if !ok || !class.GlobalDefault {
		return err
	}
	classes, err := p.classes(ctx)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	for _, other := range classes {
		if other.GlobalDefault && (a.GetOperation() == admission.Create || other.Name != class.Name) {
			return plugin.Forbid(a,
				"globalDefault: the priority class %q is already the default", other.Name)
		}
	}
	return nil
}

// EnsureSystemPriorityClasses creates the priority classes that every cluster has.
func EnsureSystemPriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	for _, class := range core.SystemPriorityClasses() {
		_, err := client.SchedulingV1().PriorityClasses().Get(ctx, class.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("priority class %s: %w", class.Name, err)
		}
	}
	return nil
}
