package conformance_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestMetadataOfUpdates checks the kinds for which kube-apiserver accepts, on update, metadata that
// is invalid on create for all but custom resources.
func TestMetadataOfUpdates(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers, withoutServiceAccounts)
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	resources := createAll(t, s)

	for _, tt := range []struct{ field, patch, accepted string }{
		{
			"metadata.generateName", `{"metadata":{"generateName":"Bad_"}}`,
			"certificatesigningrequests clusterrolebindings clusterroles " +
				"cronjobs crontabs csidrivers customresourcedefinitions daemonsets deployments " +
				"deviceclasses devicetaintrules events horizontalpodautoscalers leases " +
				"networkpolicies podcertificaterequests poddisruptionbudgets podtemplates " +
				"priorityclasses replicasets replicationcontrollers resourcequotas resourceslices " +
				"rolebindings roles servicecidrs services statefulsets",
		},
		{
			"metadata.finalizers[0]", `{"metadata":{"finalizers":["a"]}}`,
			"apiservices crontabs customresourcedefinitions events leases " +
				"mutatingadmissionpolicies mutatingadmissionpolicybindings " +
				"mutatingwebhookconfigurations poddisruptionbudgets runtimeclasses " +
				"validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations",
		},
	} {
		t.Run(tt.field, func(t *testing.T) {
			t.Parallel()
			var accepted []string
			for _, obj := range objects(t) {
				r := resources[obj.GroupVersionKind()]
				if r.Group == "events.k8s.io" { // validates finalizers, which events in the core group do not
					continue
				}
				_, err := client.Resource(obj.GroupVersionKind().GroupVersion().WithResource(r.Name)).
					Namespace(obj.GetNamespace()).
					Patch(t.Context(), obj.GetName(), types.MergePatchType, []byte(tt.patch),
						metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				switch {
				case err == nil:
					accepted = append(accepted, r.Name)
				case !apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid) ||
					!strings.Contains(err.Error(), tt.field):
					t.Errorf("%s: %v", r.Name, err)
				}
			}
			slices.Sort(accepted)
			if got := strings.Join(slices.Compact(accepted), " "); got != tt.accepted {
				t.Errorf("accepted by\n%s, want\n%s", got, tt.accepted)
			}
		})
	}
}

// TestUIDsArePreconditions sends requests whose UID is that of another object with the same name.
func TestUIDsArePreconditions(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers, withoutServiceAccounts)
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "other"},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
	}
	if err := pods.Bind(t.Context(), binding, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("bind a pod with another UID: %v, want a conflict", err)
	}

	labels := map[string]string{"app": "x"}
	replicaSets := client.AppsV1().ReplicaSets("default")
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: appsv1.ReplicaSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
	}}
	if _, err := replicaSets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default", UID: "other"},
	}
	if _, err := replicaSets.UpdateScale(t.Context(), "r", scale,
		metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("scale a replica set with another UID: %v, want a conflict", err)
	}
}
