package looptest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestClaimUnused follows the condition of a claim while pods come, end and go.
func TestClaimUnused(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	ctx, pods := t.Context(), client.CoreV1().Pods(namespace)
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	volume := workloadtest.Must(client.CoreV1().PersistentVolumes().Create(ctx,
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/data"},
				},
			},
		}, metav1.CreateOptions{}))(t)
	claim := protectionClaim(nil)
	claim.Spec.StorageClassName, claim.Spec.VolumeName = new(""), volume.Name
	claim = workloadtest.Must(claims.Create(ctx, claim, metav1.CreateOptions{}))(t)
	says := func(status corev1.ConditionStatus, reason, message string) {
		t.Helper()
		workloadtest.Until(t, func(ctx context.Context) string {
			c, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			for _, is := range c.Status.Conditions {
				if is.Type == "Unused" && is.Status == status && is.Reason == reason &&
					is.Message == message && !is.LastTransitionTime.IsZero() {
					return ""
				}
			}
			return fmt.Sprintf("want %s, the status is %+v", reason, c.Status)
		})
	}
	unused := func() {
		t.Helper()
		says(corev1.ConditionTrue, "NoPodsUsingPVC", "No pods are currently referencing this PVC")
	}
	used := func() {
		t.Helper()
		says(corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC")
	}
	pod := func(name string) {
		t.Helper()
		workloadtest.Must(pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
				}}},
			},
		}, metav1.CreateOptions{}))(t)
	}
	unused()
	pod("ends") // it has no node
	used()
	workloadtest.Must(pods.Patch(ctx, "ends", types.MergePatchType,
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"))(t)
	unused()
	pod("goes")
	used()
	workloadtest.OK(t, pods.Delete(ctx, "goes", metav1.DeleteOptions{}))
	unused()
}
