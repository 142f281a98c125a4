package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAdmissionPluginsSeeEveryChange checks that pods get what the default priority class and the
// limit range say at the time of their creation, whatever has changed since the pod before.
func TestAdmissionPluginsSeeEveryChange(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, client := quiet(t)
	classes, ranges := client.SchedulingV1().PriorityClasses(), client.CoreV1().LimitRanges("default")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	must(client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}))(t)
	check := func(when string, priority int32, limit string) {
		t.Helper()
		pod := newPod()
		pod.GenerateName, pod.Name = "pod-", ""
		pod, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := pod.Spec.Containers[0].Resources.Limits.Cpu().String()
		if *pod.Spec.Priority != priority || got != limit {
			t.Errorf("%s: got priority %d and limit %s, want %d and %s",
				when, *pod.Spec.Priority, got, priority, limit)
		}
	}
	class := func(name string, value int32) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{
			ObjectMeta:    metav1.ObjectMeta{Name: name},
			Value:         value,
			GlobalDefault: true,
		}
	}
	limits := func(name, cpu string) *corev1.LimitRange {
		return &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type:    corev1.LimitTypeContainer,
				Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		}
	}
	check("first", 0, "0")
	must(classes.Create(ctx, class("low", 1), metav1.CreateOptions{}))(t)
	check("a class was created", 1, "0")
	must(ranges.Create(ctx, limits("small", "1"), metav1.CreateOptions{}))(t)
	check("a limit range was created", 1, "1")
	changed := limits("small", "2")
	must(ranges.Update(ctx, changed, metav1.UpdateOptions{}))(t)
	check("the limit range was changed", 1, "2")
	for _, err := range []error{
		classes.Delete(ctx, "low", metav1.DeleteOptions{}),
		ranges.Delete(ctx, "small", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	check("both were deleted", 0, "0")
	must(classes.Create(ctx, class("high", 7), metav1.CreateOptions{}))(t)
	must(ranges.Create(ctx, limits("large", "3"), metav1.CreateOptions{}))(t)
	check("others were created", 7, "3")
}
