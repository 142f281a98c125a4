package looptest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/controllers/volumes/devicetainteviction"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// taintedDevices is a namespace with pods that use devices of a driver of its own.
type taintedDevices struct {
	*testing.T
	kubernetes.Interface
	namespace, driver string
}

// pod creates a pod with a device of its own, whose name is the same.
func (c taintedDevices) pod(name string, tolerations ...resourcev1.DeviceToleration) {
	c.Helper()
	claims := c.ResourceV1().ResourceClaims(c.namespace)
	claim := workloadtest.Must(claims.Create(c.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{
				Name: "d", Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: "any", Tolerations: tolerations,
				},
			}},
		}},
	}, metav1.CreateOptions{}))(c.T)
	pod := workloadtest.Must(c.CoreV1().Pods(c.namespace).Create(c.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:       "somewhere",
			Containers:     []corev1.Container{{Name: "c", Image: "i"}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: &name}},
		},
	}, metav1.CreateOptions{}))(c.T)
	claim.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "d", Driver: c.driver, Pool: "pool", Device: name, Tolerations: tolerations,
			}},
		}},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{
			Resource: "pods", Name: name, UID: pod.UID,
		}},
	}
	workloadtest.Must(claims.UpdateStatus(c.Context(), claim, metav1.UpdateOptions{}))(c.T)
}

// evicted waits until a pod is deleted because of its device.
func (c taintedDevices) evicted(name string) {
	c.Helper()
	workloadtest.Until(c.T, func(ctx context.Context) string {
		p, err := c.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if p.DeletionTimestamp == nil || !slices.ContainsFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool {
				return c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByDeviceTaintManager"
			}) {
			return fmt.Sprintf("the pod is not evicted: %v, %+v", p.DeletionTimestamp, p.Status)
		}
		return ""
	})
	c.event(name, "Marking for deletion")
}

func (c taintedDevices) event(pod, message string) {
	c.Helper()
	workloadtest.Until(c.T, func(ctx context.Context) string {
		list, err := c.CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == "DeviceTaintManagerEviction" && e.InvolvedObject.Name == pod &&
				e.Message == message && e.Source.Component == devicetainteviction.Name
		}) {
			return fmt.Sprintf("no event %s of the pod %s", message, pod)
		}
		return ""
	})
}

// rule creates a rule for a device. Its name is that of the namespace, because others may exist.
func (c taintedDevices) rule(device string, effect resourcev1.DeviceTaintEffect) {
	c.Helper()
	workloadtest.Must(c.ResourceV1().DeviceTaintRules().Create(c.Context(), &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + device},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: &c.driver, Device: &device},
			Taint:          resourcev1.DeviceTaint{Key: "example.com/broken", Effect: effect},
		},
	}, metav1.CreateOptions{}))(c.T)
}

// says waits until the condition of a rule says something.
func (c taintedDevices) says(device string, want string) {
	c.Helper()
	workloadtest.Until(c.T, func(ctx context.Context) string {
		rule, err := c.ResourceV1().DeviceTaintRules().Get(ctx, c.namespace+"-"+device,
			metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range rule.Status.Conditions {
			if fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message) == want &&
				c.ObservedGeneration == rule.Generation {
				return ""
			}
		}
		return fmt.Sprintf("the rule says %+v, want %s", rule.Status.Conditions, want)
	})
}

// TestDeviceTaintEviction evicts pods because of rules and of taints that a driver publishes. It
// takes some seconds because the status of a rule is written once a second at most.
func TestDeviceTaintEviction(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	c := taintedDevices{t, client, namespace, namespace + ".example.com"}
	c.pod("one")
	c.pod("patient", resourcev1.DeviceToleration{
		Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute,
		TolerationSeconds: new(int64(3600)),
	})
	c.pod("other")

	c.rule("none", resourcev1.DeviceTaintEffectNoSchedule)
	c.says("none", "EvictionInProgress=False OtherEffect: Eviction only happens for the NoExecute "+
		"effect.")
	c.rule("other", resourcev1.DeviceTaintEffectNone)
	c.says("other", "EvictionInProgress=False NoEffect: 0 published devices selected. "+
		"1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was "+
		"NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger "+
		"an update.")
	c.rule("one", resourcev1.DeviceTaintEffectNoExecute)
	c.evicted("one")
	c.says("one", "EvictionInProgress=False Completed: 1 pod evicted since starting the controller.")

	// An eviction that is still to come can be called off.
	c.rule("patient", resourcev1.DeviceTaintEffectNoExecute)
	c.says("patient", "EvictionInProgress=True PodsPendingEviction: 1 pod needs to be evicted in "+
		"1 namespace.")
	workloadtest.OK(t, c.ResourceV1().DeviceTaintRules().Delete(t.Context(), namespace+"-patient",
		metav1.DeleteOptions{}))
	c.event("patient", "Cancelling deletion")

	// A taint of the driver counts if it is in the newest generation of the pool.
	slice := func(name string, generation int64, taints ...resourcev1.DeviceTaint) {
		t.Helper()
		workloadtest.Must(c.ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: c.driver, AllNodes: new(true),
				Pool:    resourcev1.ResourcePool{Name: "pool", Generation: generation, ResourceSliceCount: 1},
				Devices: []resourcev1.Device{{Name: "other", Taints: taints}},
			},
		}, metav1.CreateOptions{}))(t)
	}
	broken := resourcev1.DeviceTaint{
		Key: "example.com/broken", Effect: resourcev1.DeviceTaintEffectNoExecute,
	}
	slice("new", 2)
	slice("old", 1, broken)
	c.pod("last")
	c.rule("last", resourcev1.DeviceTaintEffectNoExecute)
	c.evicted("last") // by then, the loop has seen the old slice
	for _, name := range []string{"patient", "other"} {
		if p, err := c.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil ||
			p.DeletionTimestamp != nil {
			t.Fatalf("the pod %s is evicted: %v, %v", name, err, p.DeletionTimestamp)
		}
	}
	slice("newest", 3, broken)
	c.evicted("other")
	if _, err := c.CoreV1().Pods(namespace).Get(t.Context(), "patient",
		metav1.GetOptions{}); apierrors.IsNotFound(err) {
		t.Error("the pod patient is gone")
	}
}
