package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionPriority(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "Priority", client)
	never := corev1.PreemptNever
	must(client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "polite"}, Value: -5, PreemptionPolicy: &never,
	}, metav1.CreateOptions{}))(t)
	pod := func(class string, value *int32, policy *corev1.PreemptionPolicy) *corev1.Pod {
		return newPod(func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority, p.Spec.PreemptionPolicy = class, value, policy
		})
	}
	check := func(
		name string, pod *corev1.Pod, class string, value int32, policy corev1.PreemptionPolicy,
	) {
		t.Helper()
		if err := ask(t, p, "pods", pod, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if s := pod.Spec; s.PriorityClassName != class || *s.Priority != value ||
			*s.PreemptionPolicy != policy {
			t.Errorf("%s: got class %q, priority %d, policy %s", name, s.PriorityClassName, *s.Priority,
				*s.PreemptionPolicy)
		}
	}
	check("no class", pod("", nil, nil), "", 0, corev1.PreemptLowerPriority)
	check("class", pod("polite", nil, nil), "polite", -5, never)
	check("class, and the same", pod("polite", new(int32(-5)), &never), "polite", -5, never)
	check("system class", pod("system-cluster-critical", nil, nil), "system-cluster-critical",
		2000000000, corev1.PreemptLowerPriority)
	checkRefused(t, "no class, but a policy", ask(t, p, "pods", pod("", nil, &never), nil), true)
	checkRefused(t, "no class, but a value", ask(t, p, "pods", pod("", new(int32(1)), nil), nil), true)
	checkRefused(t, "another value", ask(t, p, "pods", pod("polite", new(int32(1)), nil), nil), true)
	checkRefused(t, "another policy",
		ask(t, p, "pods", pod("polite", nil, new(corev1.PreemptLowerPriority)), nil), true)
	checkRefused(t, "no such class", ask(t, p, "pods", pod("none", nil, nil), nil), true)
	updated := pod("polite", nil, nil)
	if err := ask(t, p, "pods", updated, pod("polite", new(int32(-5)), &never)); err != nil ||
		updated.Spec.Priority == nil || updated.Spec.PreemptionPolicy == nil {
		t.Errorf("an update removed the priority: %v, %+v", err, updated.Spec)
	}

	class := func(name string, byDefault bool) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{
			ObjectMeta:    metav1.ObjectMeta{Name: name},
			Value:         3,
			GlobalDefault: byDefault,
		}
	}
	const resource = "priorityclasses.scheduling.k8s.io"
	checkRefused(t, "first default", ask(t, p, resource, class("usual", true), nil), false)
	must(client.SchedulingV1().PriorityClasses().Create(t.Context(), class("usual", true),
		metav1.CreateOptions{}))(t)
	checkRefused(t, "second default", ask(t, p, resource, class("other", true), nil), true)
	checkRefused(t, "becomes the second default",
		ask(t, p, resource, class("other", true), class("other", false)), true)
	checkRefused(t, "stays the default",
		ask(t, p, resource, class("usual", true), class("usual", true)), false)
	check("default class", pod("", nil, nil), "usual", 3, corev1.PreemptLowerPriority)
}

func TestAdmissionPriorityOfPodGroups(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "Priority", client)
	must(client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "polite"}, Value: -5,
	}, metav1.CreateOptions{}))(t)
	const groups, composites = "podgroups.scheduling.k8s.io", "compositepodgroups.scheduling.k8s.io"
	group := func(class string, value *int32) *schedulingv1beta1.PodGroup {
		return &schedulingv1beta1.PodGroup{
			Spec: schedulingv1beta1.PodGroupSpec{PriorityClassName: class, Priority: value},
		}
	}
	composite := func(class string, value *int32) *schedulingv1alpha3.CompositePodGroup {
		return &schedulingv1alpha3.CompositePodGroup{
			Spec: schedulingv1alpha3.CompositePodGroupSpec{PriorityClassName: class, Priority: value},
		}
	}
	for class, want := range map[string]int32{"": 0, "polite": -5} {
		g, c := group(class, nil), composite(class, nil)
		if err := ask(t, p, groups, g, nil); err != nil || g.Spec.PriorityClassName != class ||
			g.Spec.Priority == nil || *g.Spec.Priority != want {
			t.Errorf("pod group, class %q: %v, %+v", class, err, g.Spec)
		}
		if err := ask(t, p, composites, c, nil); err != nil || c.Spec.PriorityClassName != class ||
			c.Spec.Priority == nil || *c.Spec.Priority != want {
			t.Errorf("composite pod group, class %q: %v, %+v", class, err, c.Spec)
		}
	}
	checkRefused(t, "the same value", ask(t, p, groups, group("polite", new(int32(-5))), nil), false)
	checkRefused(t, "another value", ask(t, p, groups, group("polite", new(int32(1))), nil), true)
	checkRefused(t, "composite, another value",
		ask(t, p, composites, composite("polite", new(int32(1))), nil), true)
	checkRefused(t, "no such class", ask(t, p, groups, group("none", nil), nil), true)
	checkRefused(t, "composite, no such class",
		ask(t, p, composites, composite("none", nil), nil), true)
	updated := group("none", nil)
	checkRefused(t, "update", ask(t, p, groups, updated, group("polite", new(int32(-5)))), false)
	if updated.Spec.Priority != nil {
		t.Errorf("an update resolved the class: %+v", updated.Spec)
	}
}
