package looptest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/internal/simulated"
	"github.com/kinproc/kinproc/server/servertest"
)

const kwokMark = "kwok.x-k8s.io/node"

// othersCreate creates a node as somebody else would.
func othersCreate(
	t *testing.T, client kubernetes.Interface, name string, change func(*corev1.Node),
) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	change(n)
	created, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	return created
}

// othersAwait waits until a node is ready.
func othersAwait(t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	workloadtest.Until(t, func(ctx context.Context) string {
		var err error
		n, err = client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady {
				return name + " has the taint of a node that is not ready"
			}
		}
		if nodesCondition(n, corev1.NodeReady) != corev1.ConditionTrue {
			return fmt.Sprintf("%s is %+v", name, n.Status)
		}
		return ""
	})
	return n
}

func othersMark(n *corev1.Node) { n.Annotations[kwokMark] = "fake" }

func othersPod(
	t *testing.T, client kubernetes.Interface, node string, change ...func(*corev1.Pod),
) string {
	t.Helper()
	p := nodesPod("on-"+node, change...)
	p.Spec.NodeName = node
	return nodesCreatePod(t, client, p).Name
}

func othersTolerates(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

// TestNodesOfOthersKeepWhatTheirMakersSaid has a control plane without nodes of its own.
func TestNodesOfOthersKeepWhatTheirMakersSaid(t *testing.T) {
	t.Parallel()
	client := workloadtest.Client(t, servertest.Run(t))
	othersCreate(t, client, "said", func(n *corev1.Node) {
		n.Annotations[kwokMark] = "fake"
		n.Labels = map[string]string{corev1.LabelOSStable: "windows", "example.com/pool": "a"}
		n.Spec = corev1.NodeSpec{
			ProviderID: "kwok://said", PodCIDR: "10.7.0.0/24", PodCIDRs: []string{"10.7.0.0/24"},
			Taints: []corev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoExecute}},
		}
		n.Status = corev1.NodeStatus{
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), "example.com/gpu": resource.MustParse("2"),
			},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.7.1.1"}},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Reason: "Full"},
				{Type: "example.com/Fan", Status: corev1.ConditionTrue},
			},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.2.3"},
		}
	})
	n := othersAwait(t, client, "said")
	s := n.Status
	for _, want := range []struct {
		name string
		is   string
		want string
	}{
		{"CPUs", s.Capacity.Cpu().String(), "4"},
		{"allocatable CPUs", s.Allocatable.Cpu().String(), "3"},
		{"pods", s.Allocatable.Pods().String(), "110"},
		{"allocatable GPUs", s.Allocatable.Name("example.com/gpu", resource.DecimalSI).String(), "2"},
		{"address", s.Addresses[0].Address, "10.7.1.1"},
		{"addresses", fmt.Sprint(len(s.Addresses)), "2"},
		{"provider", n.Spec.ProviderID, "kwok://said"},
		{"pod CIDR", n.Spec.PodCIDR, "10.7.0.0/24"},
		{"version", s.NodeInfo.KubeletVersion, "v1.2.3"},
		{"runtime", s.NodeInfo.ContainerRuntimeVersion, "simulated://kinproc"},
		{"operating system", s.NodeInfo.OperatingSystem, "windows"},
		{"disk pressure", string(nodesCondition(n, corev1.NodeDiskPressure)), "True"},
		{"memory pressure", string(nodesCondition(n, corev1.NodeMemoryPressure)), "False"},
		{"fan", string(nodesCondition(n, "example.com/Fan")), "True"},
		{"simulated", string(nodesCondition(n, simulated.Condition)), "True"},
		{"pool", n.Labels["example.com/pool"], "a"},
		{"label of the operating system", n.Labels[corev1.LabelOSStable], "windows"},
		{"host name", n.Labels[corev1.LabelHostname], "said"},
		{"label of its own", n.Labels[simulated.Label], ""},
		{"taint", fmt.Sprint(n.Spec.Taints[0].Key), "example.com/own"},
	} {
		if want.is != want.want {
			t.Errorf("%s: %q, want %q", want.name, want.is, want.want)
		}
	}
	p := nodesAwaitPod(t, client, othersPod(t, client, "said", othersTolerates), pods.Ready)
	if p.Status.HostIP != "10.7.1.1" {
		t.Errorf("the pod is on %s", p.Status.HostIP)
	}
	// Annotations work as on kinproc's own.
	othersPatch(t, client, "said", `{"metadata":{"annotations":{"kinproc.dev/not-ready":"true"}}}`)
	workloadtest.Until(t, func(ctx context.Context) string {
		n, err := client.CoreV1().Nodes().Get(ctx, "said", metav1.GetOptions{})
		if err != nil || nodesCondition(n, corev1.NodeReady) != corev1.ConditionFalse {
			return fmt.Sprintf("%v, %+v", err, n.Status.Conditions)
		}
		return ""
	})
}

func othersPatch(t *testing.T, client kubernetes.Interface, node, patch string) {
	t.Helper()
	_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	workloadtest.OK(t, err)
}

// TestNodesOfOthersAreMarked has a node for each mark, one without, and one that loses its mark.
func TestNodesOfOthersAreMarked(t *testing.T) {
	t.Parallel()
	client := nodesSimulate(t, 1, func(o *server.Options) {
		o.Controllers, o.SimulateNodesMatching = []string{"*"}, "type in (virtual),!real"
	})
	marks := map[string]func(*corev1.Node){
		"annotated":  othersMark,
		"labelled":   func(n *corev1.Node) { n.Labels[kwokMark] = "fake" },
		"kinproc":    func(n *corev1.Node) { n.Labels[simulated.Label] = "true" },
		"matching":   func(n *corev1.Node) { n.Labels["type"] = "virtual" },
		"plain":      func(*corev1.Node) {},
		"real":       func(n *corev1.Node) { n.Labels["type"], n.Labels["real"] = "virtual", "" },
		"otherwise":  func(n *corev1.Node) { n.Annotations[kwokMark] = "real" },
		"unlabelled": othersMark,
	}
	seen := map[string]string{}
	unique := func(what, of string) {
		t.Helper()
		if seen[what] != "" {
			t.Errorf("%s and %s have %q", of, seen[what], what)
		}
		seen[what] = of
	}
	created := map[string]*corev1.Node{}
	for name, mark := range marks {
		created[name] = othersCreate(t, client, name, mark)
	}
	left := map[string]bool{"plain": true, "real": true, "otherwise": true}
	for name := range marks {
		if left[name] {
			continue
		}
		n := othersAwait(t, client, name)
		unique(n.Spec.PodCIDR, name)
		unique(n.Status.Addresses[0].Address, name)
		lease := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		workloadtest.Until(t, func(ctx context.Context) string {
			l, err := lease.Get(ctx, name, metav1.GetOptions{})
			if err != nil || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != n.UID {
				return fmt.Sprintf("%v; %+v", err, l)
			}
			return ""
		})
	}
	own := othersAwait(t, client, "simulated-0")
	unique(own.Spec.PodCIDR, own.Name)
	unique(own.Status.Addresses[0].Address, own.Name)
	othersPatch(t, client, "unlabelled", `{"metadata":{"annotations":{"`+kwokMark+`":null}}}`)
	left["unlabelled"] = true
	for name := range left {
		othersPod(t, client, name, othersTolerates)
	}
	for name := range marks {
		if !left[name] {
			p := nodesAwaitPod(t, client, othersPod(t, client, name), pods.Ready)
			unique(p.Status.PodIP, p.Name)
		}
	}
	for name := range left {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), "on-"+name, metav1.GetOptions{})
		workloadtest.OK(t, err)
		if p.Status.Phase != corev1.PodPending || p.Status.StartTime != nil {
			t.Errorf("the pod on %s is %+v", name, p.Status)
		}
		n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		workloadtest.OK(t, err)
		if name != "unlabelled" && (nodesCondition(n, simulated.Condition) != "" ||
			len(n.Status.Addresses) > 0 || n.Spec.PodCIDR != "" ||
			len(n.Labels) != len(created[name].Labels)) {
			t.Errorf("the node %s has changed: %+v", name, n)
		}
	}

	workloadtest.OK(t, client.CoreV1().Nodes().Delete(t.Context(), "annotated",
		metav1.DeleteOptions{}))
	nodesAwaitPodGone(t, client, "on-annotated")
	workloadtest.Until(t, func(ctx context.Context) string {
		l, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "annotated",
			metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("the lease still exists: %v; %+v", err, l)
	})
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "annotated",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the node is back: %v", err)
	}
}

// TestNodesOfOthersOutliveStarts starts again with fewer nodes, then with none.
func TestNodesOfOthersOutliveStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(count int) (*server.Server, kubernetes.Interface) {
		s := servertest.Run(t, func(o *server.Options) { o.DataDir, o.SimulatedNodes = dir, count })
		return s, workloadtest.Client(t, s)
	}
	s, client := start(2)
	before := map[string]types.UID{}
	// The first name is one that kinproc might use.
	for _, name := range []string{"simulated-7", "labelled"} {
		before[name] = othersCreate(t, client, name, func(n *corev1.Node) {
			n.Annotations[kwokMark] = "fake"
			if name == "labelled" {
				n.Labels[simulated.Label], n.Annotations = "true", nil
			}
		}).UID
		othersAwait(t, client, name)
	}
	was := nodesAwaitPod(t, client, othersPod(t, client, "labelled"), pods.Ready)
	addresses := map[string]bool{was.Status.PodIP: true}
	for _, count := range []int{1, 0} {
		workloadtest.OK(t, s.Stop(t.Context()))
		s, client = start(count)
		workloadtest.Until(t, func(ctx context.Context) string {
			_, err := client.CoreV1().Nodes().Get(ctx, fmt.Sprintf("simulated-%d", count),
				metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return ""
			}
			return fmt.Sprintf("simulated-%d still exists: %v", count, err)
		})
		name := fmt.Sprintf("later-%d", count)
		nodesCreatePod(t, client, nodesPod(name, func(p *corev1.Pod) { p.Spec.NodeName = "labelled" }))
		if ip := nodesAwaitPod(t, client, name, pods.Ready).Status.PodIP; addresses[ip] {
			t.Errorf("%s has the address %s of another pod", name, ip)
		} else {
			addresses[ip] = true
		}
		othersCreate(t, client, name, othersMark)
		ip := othersAwait(t, client, name).Status.Addresses[0].Address
		if addresses[ip] {
			t.Errorf("the node %s has the address %s of another node", name, ip)
		}
		addresses[ip] = true
	}
	for name, uid := range before {
		n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		workloadtest.OK(t, err)
		if n.UID != uid {
			t.Errorf("%s is another node", name)
		}
		if addresses[n.Status.Addresses[0].Address] {
			t.Errorf("%s has the address of a later node: %v", name, n.Status.Addresses)
		}
	}
	is := nodesAwaitPod(t, client, was.Name, pods.Ready)
	if is.ResourceVersion != was.ResourceVersion {
		t.Errorf("the pod has changed from %+v to %+v", was.Status, is.Status)
	}
}
