package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionPersistentVolumeClaimResize(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "PersistentVolumeClaimResize", client)
	for name, grows := range map[string]*bool{"grows": new(true), "stays": new(false), "silent": nil} {
		must(client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta:           metav1.ObjectMeta{Name: name},
			Provisioner:          "example.com/p",
			AllowVolumeExpansion: grows,
		}, metav1.CreateOptions{}))(t)
	}
	claim := func(
		class string, phase corev1.PersistentVolumeClaimPhase, size string,
	) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class,
				Resources:        corev1.VolumeResourceRequirements{Requests: quantities("storage", size)},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
		}
	}
	for name, c := range map[string]struct {
		class    string
		phase    corev1.PersistentVolumeClaimPhase
		from, to string
		refused  bool
	}{
		"grows":          {"grows", corev1.ClaimBound, "1Gi", "2Gi", false},
		"not bound":      {"grows", corev1.ClaimPending, "1Gi", "2Gi", true},
		"not its class":  {"stays", corev1.ClaimBound, "1Gi", "2Gi", true},
		"class is mute":  {"silent", corev1.ClaimBound, "1Gi", "2Gi", true},
		"no such class":  {"none", corev1.ClaimBound, "1Gi", "2Gi", true},
		"without class":  {"", corev1.ClaimBound, "1Gi", "2Gi", true},
		"same size":      {"stays", corev1.ClaimBound, "1Gi", "1024Mi", false},
		"shrinks":        {"stays", corev1.ClaimBound, "2Gi", "1Gi", false}, // rejected by validation
		"same, unbound":  {"grows", corev1.ClaimPending, "1Gi", "1Gi", false},
		"lost and grown": {"grows", corev1.ClaimLost, "1Gi", "2Gi", true},
	} {
		checkRefused(t, name, ask(t, p, "persistentvolumeclaims", claim(c.class, c.phase, c.to),
			claim(c.class, c.phase, c.from)), c.refused)
		checkRefused(t, name+", by status", ask(t, p, "persistentvolumeclaims/status",
			claim(c.class, c.phase, c.to), claim(c.class, c.phase, c.from)), false)
	}
}
