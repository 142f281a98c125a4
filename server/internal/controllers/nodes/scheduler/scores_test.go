package scheduler

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// scoredNodes returns an attempt and the nodes for it.
func scoredNodes(t *testing.T, r refusal) (*attempt, []*node) {
	t.Helper()
	a := r.attempt(t)
	if v, _ := a.prepare(); !v.ok() {
		t.Fatal(v.reason)
	}
	return a, a.cluster.order
}

func TestScoresOfImages(t *testing.T) {
	t.Parallel()
	has := func(name string, size int64) *corev1.Node {
		return refusalNode(func(n *corev1.Node) {
			n.Status.Images = []corev1.ContainerImage{{Names: []string{name}, SizeBytes: size}}
		})
	}
	p := refusalPod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "example.com:80/app" })
	a, nodes := scoredNodes(t, refusal{pod: p, nodes: []*corev1.Node{
		has("example.com:80/app:latest", 2000<<20), has("example.com:80/app:1", 2000<<20),
		refusalNode(), has("example.com:80/app:latest", 40<<20),
	}})
	// Half of the nodes have the image, so half of its size counts: the score is full at 1000 MiB,
	// and below 23 MiB there is none.
	if got, want := a.imageScores(nodes), []int64{100, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("the scores are %d, want %d", got, want)
	}
	a.cluster.removeNode("node-3")
	// A third of the size counts now.
	if got, want := a.imageScores(a.cluster.order), []int64{65, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("the scores without a node are %d, want %d", got, want)
	}
	a.cluster.removeNode("node-0")
	if a.cluster.images["example.com:80/app:latest"] != 0 {
		t.Errorf("the images of nodes that are gone count: %v", a.cluster.images)
	}
}

func TestScoresOfBalance(t *testing.T) {
	t.Parallel()
	p := refusalPod(refusalRequest(corev1.ResourceCPU, "32"))
	other := refusalPod(refusalRequest(corev1.ResourceMemory, "32Gi"))
	a, nodes := scoredNodes(t, refusal{
		pod: p, pods: []*corev1.Pod{other}, nodes: []*corev1.Node{refusalNode(), refusalNode()},
	})
	// The first node was out of balance and is not any more. The second one gets out of balance.
	got := []int64{a.balanced(nodes[0]), a.balanced(nodes[1])}
	if want := []int64{87, 62}; !slices.Equal(got, want) {
		t.Errorf("the scores are %d, want %d", got, want)
	}
	plain := refusalPod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil })
	a, nodes = scoredNodes(t, refusal{pod: plain, nodes: []*corev1.Node{refusalNode()}})
	if got := a.balanced(nodes[0]); got != 0 {
		t.Errorf("the score of a pod without requests is %d", got)
	}
}

func TestScoresOfVolumes(t *testing.T) {
	t.Parallel()
	const driver = "csi.example.com"
	objects := []runtime.Object{
		refusalClass("late", driver, storagev1.VolumeBindingWaitForFirstConsumer),
		refusalClaim("c", "late"), refusalClaim("d", "late"),
		&storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driver},
			Spec:       storagev1.CSIDriverSpec{StorageCapacity: new(true)},
		},
	}
	var nodes []*corev1.Node
	for _, has := range []string{"4Gi", "20Gi"} {
		objects = append(objects, &storagev1.CSIStorageCapacity{
			ObjectMeta:       metav1.ObjectMeta{Namespace: "default", Name: has},
			StorageClassName: "late", Capacity: new(resource.MustParse(has)),
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"has": has}},
		})
		nodes = append(nodes, refusalNode(func(n *corev1.Node) { n.Labels["has"] = has }))
	}
	p := refusalPod(func(p *corev1.Pod) {
		for _, c := range []string{"c", "d"} {
			source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}
			refusalVolume(corev1.VolumeSource{PersistentVolumeClaim: source})(p)
		}
	})
	a, order := scoredNodes(t, refusal{pod: p, nodes: nodes, objects: objects})
	// Both claims take 1 GiB of what there is.
	if got, want := a.volumeScores(order), []int64{50, 90}; !slices.Equal(got, want) {
		t.Errorf("the scores are %d, want %d", got, want)
	}
}

// TestScoresOfExistingVolumes scores volumes as kube-scheduler does: the more of one is left, the
// better.
func TestScoresOfExistingVolumes(t *testing.T) {
	t.Parallel()
	b := binding{claim: refusalClaim("c", "late"), volume: refusalPV("v",
		func(v *corev1.PersistentVolume) {
			v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}
		})}
	if got := scoreVolumes([]binding{b, {claim: refusalClaim("d", "other")}}); got != 75 {
		t.Errorf("the score is %d, want 75", got)
	}
}

func TestScoresOfAlternatives(t *testing.T) {
	t.Parallel()
	c := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{
			{Name: "a", Exactly: &resourcev1.ExactDeviceRequest{}},
			{Name: "b", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "x"}, {Name: "y"}}},
		},
	}}}
	for name, want := range map[string]int64{"b/x": 8, "b/y": 7} {
		allocation := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Request: "a"}, {Request: name}},
		}}
		if got := scoreAlternatives(c, allocation); got != want {
			t.Errorf("%s has the score %d, want %d", name, got, want)
		}
	}
}
