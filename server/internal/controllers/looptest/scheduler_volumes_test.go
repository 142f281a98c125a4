package looptest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server/internal/controllers/nodes/scheduler"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

func schedulerStorage() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

func (c schedulerCluster) claim(name, class string) {
	c.tb.Helper()
	if _, err := c.CoreV1().PersistentVolumeClaims("default").Create(c.tb.Context(),
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: &class,
				Resources:        corev1.VolumeResourceRequirements{Requests: schedulerStorage()},
			},
		}, metav1.CreateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

// volume creates a volume that can be used on one node only.
func (c schedulerCluster) volume(name, class, node string) {
	c.tb.Helper()
	if _, err := c.CoreV1().PersistentVolumes().Create(c.tb.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         schedulerStorage(),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: "/data"},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
					}},
				}},
			}},
		},
	}, metav1.CreateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
	c.patchVolume(name, `{"status":{"phase":"Available"}}`)
}

func (c schedulerCluster) patchVolume(name, status string) {
	c.tb.Helper()
	if _, err := c.CoreV1().PersistentVolumes().Patch(c.tb.Context(), name, types.MergePatchType,
		[]byte(status), metav1.PatchOptions{}, "status"); err != nil {
		c.tb.Fatal(err)
	}
}

// bindClaim does what the volume controller does for a claim that has got a volume.
func (c schedulerCluster) bindClaim(name, volume string) {
	c.tb.Helper()
	claims := c.CoreV1().PersistentVolumeClaims("default")
	if _, err := claims.Patch(c.tb.Context(), name, types.MergePatchType, []byte(`{"metadata":`+
		`{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}},`+
		`"spec":{"volumeName":"`+volume+`"}}`),
		metav1.PatchOptions{}); err != nil {
		c.tb.Fatal(err)
	}
	if _, err := claims.Patch(c.tb.Context(), name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status"); err != nil {
		c.tb.Fatal(err)
	}
}

func schedulerUsing(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
}

// TestSchedulerVolumes plays the volume controller.
func TestSchedulerVolumes(t *testing.T) {
	t.Parallel()
	c := schedulerConnect(t, scheduler.Name)
	ctx := t.Context()
	c.node("one", "4")
	c.node("two", "4")
	for name, class := range map[string]struct {
		provisioner string
		mode        storagev1.VolumeBindingMode
	}{
		"immediate": {"example.com/p", storagev1.VolumeBindingImmediate},
		"late":      {"example.com/p", storagev1.VolumeBindingWaitForFirstConsumer},
		"local":     {"kubernetes.io/no-provisioner", storagev1.VolumeBindingWaitForFirstConsumer},
	} {
		if _, err := c.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: class.provisioner,
			VolumeBindingMode: &class.mode,
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const unhelpful = " preemption: 0/2 nodes are available: " +
		"2 Preemption is not helpful for scheduling."

	c.pod("immediate", "1", schedulerUsing("immediate"))
	c.refused("immediate",
		`0/2 nodes are available: persistentvolumeclaim "immediate" not found. not found`)
	c.claim("immediate", "immediate")
	c.refused("immediate",
		"0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found")
	c.volume("volume-two", "immediate", "two")
	c.bindClaim("immediate", "volume-two")
	if got := c.on("immediate"); got != "two" {
		t.Errorf("the pod with a volume on node two is on %s", got)
	}
	c.pod("conflict", "1", schedulerUsing("immediate"), func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "one"}
	})
	c.refused("conflict", "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node "+
		"affinity, 1 node(s) didn't match Pod's node affinity/selector."+unhelpful)

	c.claim("lost", "immediate")
	c.bindClaim("lost", "nothing")
	c.pod("lost", "1", schedulerUsing("lost"))
	c.refused("lost", `0/2 nodes are available: persistentvolume "nothing" not found. not found`)

	// A volume is provisioned where the pod is to run.
	c.claim("late", "late")
	c.pod("late", "1", schedulerUsing("late"))
	claims := c.CoreV1().PersistentVolumeClaims("default")
	const selectedNode = "volume.kubernetes.io/selected-node"
	selected := workloadtest.Await(t, "the claim late has a node",
		func(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
			return claims.Get(ctx, "late", metav1.GetOptions{})
		}, func(claim *corev1.PersistentVolumeClaim) bool {
			return claim.Annotations[selectedNode] != ""
		}).Annotations[selectedNode]
	c.await("late", "pending", func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "" && p.Status.NominatedNodeName == selected
	})
	c.volume("volume-late", "late", selected)
	c.bindClaim("late", "volume-late")
	if got := c.on("late"); got != selected {
		t.Errorf("the pod is on %s, and %s was selected for its claim", got, selected)
	}

	// Without a provisioner, one of the volumes that exist is taken.
	c.claim("local", "local")
	c.pod("local", "1", schedulerUsing("local"))
	c.refused("local", "0/2 nodes are available: 2 node(s) didn't find available persistent volumes "+
		"to bind."+unhelpful)
	c.volume("volume-one", "local", "one")
	workloadtest.Await(t, "the volume is bound to the claim",
		func(ctx context.Context) (*corev1.PersistentVolume, error) {
			return c.CoreV1().PersistentVolumes().Get(ctx, "volume-one", metav1.GetOptions{})
		}, func(v *corev1.PersistentVolume) bool {
			return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Name == "local"
		})
	c.bindClaim("local", "volume-one")
	if got := c.on("local"); got != "one" {
		t.Errorf("the pod with a volume on node one is on %s", got)
	}
}
