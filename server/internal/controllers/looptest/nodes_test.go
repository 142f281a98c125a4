package looptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/internal/simulated"
	"github.com/kinproc/kinproc/server/servertest"
)

// nodesSimulate starts a control plane with simulated nodes, and waits until they are ready.
func nodesSimulate(
	t *testing.T, count int, configure ...func(*server.Options),
) kubernetes.Interface {
	t.Helper()
	s := servertest.Run(t, append(configure, func(o *server.Options) { o.SimulatedNodes = count })...)
	client := workloadtest.Client(t, s)
	nodesAwait(t, client, count)
	return client
}

// nodesAwait waits until there are as many nodes as expected, all of which are ready.
func nodesAwait(t *testing.T, client kubernetes.Interface, count int) []corev1.Node {
	t.Helper()
	var list *corev1.NodeList
	workloadtest.Until(t, func(ctx context.Context) string {
		var err error
		if list, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			n := &list.Items[i]
			c := nodesCondition(n, corev1.NodeReady)
			if c != corev1.ConditionTrue || len(n.Spec.Taints) > 0 {
				return fmt.Sprintf("%s: ready %q, taints %v", n.Name, c, n.Spec.Taints)
			}
		}
		if len(list.Items) != count {
			return fmt.Sprintf("there are %d nodes, want %d", len(list.Items), count)
		}
		return ""
	})
	return list.Items
}

func nodesCondition(n *corev1.Node, of corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == of {
			return c.Status
		}
	}
	return ""
}

// nodesPod returns a pod on the first node.
func nodesPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName:   "simulated-0",
			Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func nodesAnnotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations["kinproc.dev/"+key] = value }
}

func nodesCreatePod(t *testing.T, client kubernetes.Interface, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	return created
}

// nodesAwaitPod waits until a pod is as wanted, and returns it.
func nodesAwaitPod(
	t *testing.T, client kubernetes.Interface, name string, wanted func(*corev1.Pod) bool,
) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	workloadtest.Until(t, func(ctx context.Context) string {
		var err error
		if p, err = client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if !wanted(p) {
			return fmt.Sprintf("%s is %+v", name, p.Status)
		}
		return ""
	})
	return p
}

func nodesAwaitPodGone(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%s still exists: %v; %+v", name, err, p)
	})
}

// podCondition returns a condition of a pod, which is empty if the pod does not have it.
func podCondition(p *corev1.Pod, of corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return corev1.PodCondition{}
}

func nodesPodPhase(phase corev1.PodPhase) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Status.Phase == phase }
}

func nodesPodWaits(reason string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 &&
			p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == reason
	}
}

func TestNodesSayThatTheyAreSimulated(t *testing.T) {
	t.Parallel()
	client := nodesSimulate(t, 2, func(o *server.Options) {
		o.SimulatedNodeCapacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	})
	addresses := map[string]bool{}
	for _, n := range nodesAwait(t, client, 2) {
		if n.Labels[simulated.Label] != "true" ||
			nodesCondition(&n, simulated.Condition) != corev1.ConditionTrue ||
			!strings.HasPrefix(n.Status.NodeInfo.ContainerRuntimeVersion, "simulated:") {
			t.Errorf("%s does not say that it is simulated: %+v", n.Name, n)
		}
		if cpu, pods := n.Status.Allocatable.Cpu(), n.Status.Allocatable.Pods(); cpu.Value() != 3 ||
			pods.Value() != 110 {
			t.Errorf("%s has %s CPUs and room for %s pods, want 3 and 110", n.Name, cpu, pods)
		}
		addresses[n.Spec.PodCIDR], addresses[n.Status.Addresses[0].Address] = true, true
		workloadtest.Until(t, func(ctx context.Context) string {
			lease, err := client.CoordinationV1().Leases("kube-node-lease").Get(ctx, n.Name,
				metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if *lease.Spec.HolderIdentity != n.Name || lease.OwnerReferences[0].UID != n.UID {
				return fmt.Sprintf("the lease is %+v", lease)
			}
			return ""
		})
	}
	if len(addresses) != 4 {
		t.Errorf("the nodes share addresses: %v", addresses)
	}
}

func TestSimulatedPodRuns(t *testing.T) {
	t.Parallel()
	client := nodesSimulate(t, 1)
	nodesCreatePod(t, client, nodesPod("app", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			{Name: "first", Image: "example.com/first"},
			{
				Name: "beside", Image: "example.com/beside",
				RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
			},
		}
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}))
	p := nodesAwaitPod(t, client, "app", nodesPodPhase(corev1.PodRunning))
	s := p.Status
	if len(s.InitContainerStatuses) != 2 || len(s.ContainerStatuses) != 1 {
		t.Fatalf("the status is %+v", s)
	}
	first, beside := s.InitContainerStatuses[0], s.InitContainerStatuses[1]
	app := s.ContainerStatuses[0]
	if first.State.Terminated == nil || first.State.Terminated.Reason != "Completed" || !first.Ready {
		t.Errorf("the init container is %+v", first)
	}
	for _, c := range []corev1.ContainerStatus{beside, app} {
		if c.State.Running == nil || !c.Ready || !*c.Started || c.ContainerID == "" || c.ImageID == "" {
			t.Errorf("the container %s is %+v", c.Name, c)
		}
	}
	if s.StartTime == nil || s.HostIP == "" || len(s.HostIPs) != 1 || s.PodIP == "" ||
		len(s.PodIPs) != 1 || s.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("the status is %+v", s)
	}
	if s.ObservedGeneration != p.Generation {
		t.Errorf("observed generation %d of %d", s.ObservedGeneration, p.Generation)
	}
	for _, of := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodScheduled,
	} {
		c := podCondition(p, of)
		if c.Status != corev1.ConditionTrue || c.ObservedGeneration != p.Generation {
			t.Errorf("the condition %s is %+v", of, c)
		}
	}
	if c := podCondition(p, corev1.PodReady); c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("with a closed readiness gate, the condition is %+v", c)
	}
	if !slices.ContainsFunc(p.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "kubelet" && m.Subresource == "status"
	}) {
		t.Errorf("kubelet manages nothing: %+v", p.ManagedFields)
	}

	_, err := client.CoreV1().Pods("default").Patch(t.Context(), "app", types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`),
		metav1.PatchOptions{}, "status")
	workloadtest.OK(t, err)
	nodesAwaitPod(t, client, "app", pods.Ready)
}

func TestSimulatedPodsEnd(t *testing.T) {
	t.Parallel()
	client := nodesSimulate(t, 1)
	run := func(policy corev1.RestartPolicy, command ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.RestartPolicy, p.Spec.Containers[0].Command = policy, command
		}
	}
	template := nodesPod("").Spec
	template.RestartPolicy = corev1.RestartPolicyNever
	owner, err := client.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template}},
	}, metav1.CreateOptions{})
	workloadtest.OK(t, err)
	job := func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("Job")),
		}
	}
	for name, test := range map[string]struct {
		change []func(*corev1.Pod)
		phase  corev1.PodPhase
		code   int32
		reason string
	}{
		"job":     {[]func(*corev1.Pod){job}, corev1.PodSucceeded, 0, ""},
		"failing": {[]func(*corev1.Pod){job, nodesAnnotated("exit-code", "3")}, corev1.PodFailed, 3, ""},
		"script": {
			[]func(*corev1.Pod){run("Never", "/bin/sh", "-c", "echo hello; exit 7")},
			corev1.PodFailed, 7, "",
		},
		"task": {
			[]func(*corev1.Pod){run("Never", "wget"), func(p *corev1.Pod) {
				p.Spec.Containers[0].Args = []string{"web:80"}
			}},
			corev1.PodSucceeded, 0, "",
		},
		"retried-task": {
			[]func(*corev1.Pod){run("OnFailure", "migrate", "up")}, corev1.PodSucceeded, 0, "",
		},
		"retried": {
			[]func(*corev1.Pod){
				run("OnFailure"), nodesAnnotated("exit-code", "1, 1, 0"), nodesAnnotated("back-off", "1ms"),
			},
			corev1.PodSucceeded, 0, "",
		},
		"sidecar": {[]func(*corev1.Pod){job, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{
				Name: "beside", Image: "i", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
			}}
		}}, corev1.PodSucceeded, 0, ""},
		"init": {[]func(*corev1.Pod){run("Never"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", Command: []string{"false"}}}
		}}, corev1.PodFailed, -1, ""},
		"deadline": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.ActiveDeadlineSeconds = ptr.To(int64(1))
		}}, corev1.PodFailed, 137, "DeadlineExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodesCreatePod(t, client, nodesPod(name, test.change...))
			p := nodesAwaitPod(t, client, name, func(p *corev1.Pod) bool {
				return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
			})
			code := int32(-1)
			if c := p.Status.ContainerStatuses[0]; c.State.Terminated != nil {
				code = c.State.Terminated.ExitCode
			}
			if p.Status.Phase != test.phase || code != test.code || p.Status.Reason != test.reason {
				t.Errorf("%s, exit code %d, reason %q", p.Status.Phase, code, p.Status.Reason)
			}
			if pods.Ready(p) || podCondition(p, corev1.PodReady).Reason == "" {
				t.Errorf("ready: %+v", podCondition(p, corev1.PodReady))
			}
			for _, s := range p.Status.InitContainerStatuses {
				if s.State.Running != nil {
					t.Errorf("%s runs", s.Name)
				}
			}
		})
	}
}

func TestSimulatedPodsAreSteered(t *testing.T) {
	t.Parallel()
	client := nodesSimulate(t, 1)
	annotate := func(t *testing.T, name, key, value string) {
		t.Helper()
		_, err := client.CoreV1().Pods("default").Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"kinproc.dev/%s":%s}}}`, key, value),
			metav1.PatchOptions{})
		workloadtest.OK(t, err)
	}
	t.Run("not ready", func(t *testing.T) {
		t.Parallel()
		nodesCreatePod(t, client, nodesPod("unready", nodesAnnotated("not-ready", "true")))
		p := nodesAwaitPod(t, client, "unready", nodesPodPhase(corev1.PodRunning))
		if pods.Ready(p) || podCondition(p, corev1.ContainersReady).Message !=
			"containers with unready status: [c]" {
			t.Errorf("the conditions are %+v", p.Status.Conditions)
		}
		annotate(t, "unready", "not-ready", "null")
		nodesAwaitPod(t, client, "unready", pods.Ready)
	})
	t.Run("crash loop", func(t *testing.T) {
		t.Parallel()
		nodesCreatePod(t, client, nodesPod("crashing",
			nodesAnnotated("crash-loop", "true"), nodesAnnotated("back-off", "1ms")))
		p := nodesAwaitPod(t, client, "crashing", func(p *corev1.Pod) bool {
			return nodesPodWaits("CrashLoopBackOff")(p) && p.Status.ContainerStatuses[0].RestartCount > 2
		})
		if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil ||
			last.ExitCode != 1 || p.Status.Phase != corev1.PodRunning {
			t.Errorf("the status is %+v", p.Status)
		}
		annotate(t, "crashing", "crash-loop", "null")
		nodesAwaitPod(t, client, "crashing", pods.Ready)
	})
	t.Run("no back-off", func(t *testing.T) {
		t.Parallel()
		nodesCreatePod(t, client, nodesPod("hurried", nodesAnnotated("crash-loop", "true"),
			nodesAnnotated("back-off", "0s"), nodesAnnotated("run-for", "-1h")))
		nodesAwaitPod(t, client, "hurried", func(p *corev1.Pod) bool {
			return nodesPodWaits("CrashLoopBackOff")(p) && p.Status.ContainerStatuses[0].RestartCount > 2
		})
	})
	t.Run("image pull error", func(t *testing.T) {
		t.Parallel()
		nodesCreatePod(t, client, nodesPod("pulling", nodesAnnotated("image-pull-error", "true")))
		nodesAwaitPod(t, client, "pulling", nodesPodWaits("ImagePullBackOff"))
		annotate(t, "pulling", "image-pull-error", "null")
		nodesAwaitPod(t, client, "pulling", pods.Ready)
		nodesCreatePod(t, client, nodesPod("missing", func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "app:404"
		}))
		nodesAwaitPod(t, client, "missing", nodesPodWaits("ImagePullBackOff"))
	})
	t.Run("delays", func(t *testing.T) {
		t.Parallel()
		changes := workloadtest.Must(client.CoreV1().Pods("default").Watch(t.Context(),
			metav1.ListOptions{FieldSelector: "metadata.name=slow"}))(t)
		defer changes.Stop()
		created := time.Now()
		nodesCreatePod(t, client, nodesPod("slow", nodesAnnotated("start-delay", "1500ms")))
		for event := range changes.ResultChan() {
			p, ok := event.Object.(*corev1.Pod)
			if !ok || pods.Ready(p) {
				t.Fatalf("nobody saw the pod before the delay had ended: %v", event.Object)
			}
			if !nodesPodWaits("ContainerCreating")(p) {
				continue
			}
			if p.Status.Phase != corev1.PodPending || p.Status.PodIP != "" {
				t.Errorf("before the delay, the status is %+v", p.Status)
			}
			break
		}
		nodesAwaitPod(t, client, "slow", pods.Ready)
		if took := time.Since(created); took < 1500*time.Millisecond {
			t.Errorf("ready after %v", took)
		}
	})
}

func TestSimulatedPodIsDeleted(t *testing.T) {
	t.Parallel()
	client := nodesSimulate(t, 1)
	api := client.CoreV1().Pods("default")
	nodesCreatePod(t, client, nodesPod("plain"))
	nodesCreatePod(t, client, nodesPod("held", func(p *corev1.Pod) {
		p.Finalizers = []string{"example.com/hold"}
	}))
	for _, name := range []string{"plain", "held"} {
		nodesAwaitPod(t, client, name, pods.Ready)
		workloadtest.OK(t, api.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	nodesAwaitPodGone(t, client, "plain")
	p := nodesAwaitPod(t, client, "held", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed && *p.DeletionGracePeriodSeconds == 0
	})
	s := p.Status.ContainerStatuses[0]
	if s.State.Terminated == nil || s.State.Terminated.ExitCode != 137 {
		t.Errorf("the container is %+v", s)
	}
	_, err := api.Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	workloadtest.OK(t, err)
	nodesAwaitPodGone(t, client, "held")
}

// TestSimulatedPodUnknownContainer has a status of a container that the pod does not have.
func TestSimulatedPodUnknownContainer(t *testing.T) {
	t.Parallel()
	client := nodesSimulate(t, 1)
	nodesCreatePod(t, client, nodesPod("app", nodesAnnotated("not-ready", "true")))
	nodesAwaitPod(t, client, "app", nodesPodPhase(corev1.PodRunning))
	_, err := client.CoreV1().Pods("default").Patch(t.Context(), "app", types.StrategicMergePatchType,
		[]byte(`{"status":{"initContainerStatuses":[{"name":"unknown","image":"i","imageID":"",
		"ready":false,"restartCount":0}]}}`),
		metav1.PatchOptions{}, "status")
	workloadtest.OK(t, err)
	_, err = client.CoreV1().Pods("default").Patch(t.Context(), "app", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"kinproc.dev/not-ready":null}}}`), metav1.PatchOptions{})
	workloadtest.OK(t, err)
	nodesAwaitPod(t, client, "app", pods.Ready)
}

// TestSimulatedNodesLeaveOthersAlone has a node that somebody else registered under a name that
// kinproc would use, and one with another name. Once the last pod of the simulated node runs, the
// other pods must have been seen.
func TestSimulatedNodesLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := servertest.Run(t, func(o *server.Options) { o.DataDir = dir })
	client := workloadtest.Client(t, s)
	for _, name := range []string{"simulated-0", "other"} {
		_, err := client.CoreV1().Nodes().Create(t.Context(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		workloadtest.OK(t, err)
	}
	workloadtest.OK(t, s.Stop(t.Context()))
	s = servertest.Run(t, func(o *server.Options) { o.DataDir, o.SimulatedNodes = dir, 2 })
	client = workloadtest.Client(t, s)
	for _, node := range []string{"simulated-0", "other", "simulated-1"} {
		nodesCreatePod(t, client, nodesPod("on-"+node, func(p *corev1.Pod) { p.Spec.NodeName = node }))
	}
	nodesAwaitPod(t, client, "on-simulated-1", pods.Ready)
	for _, node := range []string{"simulated-0", "other"} {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), "on-"+node, metav1.GetOptions{})
		workloadtest.OK(t, err)
		if p.Status.Phase != corev1.PodPending || p.Status.StartTime != nil {
			t.Errorf("the pod on %s is %+v", node, p.Status)
		}
		n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		workloadtest.OK(t, err)
		if len(n.Status.Conditions) > 0 || len(n.Labels) > 0 {
			t.Errorf("the node %s has changed: %+v", node, n)
		}
	}
}

// TestSimulatedNodesRestart starts a control plane again with fewer nodes. The pods go on with
// their addresses, and one that was to be deleted is deleted.
func TestSimulatedNodesRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := servertest.Run(t, func(o *server.Options) { o.DataDir, o.SimulatedNodes = dir, 3 })
	client := workloadtest.Client(t, s)
	before := nodesAwait(t, client, 3)
	nodesCreatePod(t, client, nodesPod("stays"))
	nodesCreatePod(t, client, nodesPod("goes", nodesAnnotated("stop-delay", "29s")))
	was := nodesAwaitPod(t, client, "stays", pods.Ready)
	nodesAwaitPod(t, client, "goes", pods.Ready)
	api := client.CoreV1().Pods("default")
	workloadtest.OK(t, api.Delete(t.Context(), "goes", metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(2)),
	}))
	workloadtest.OK(t, s.Stop(t.Context()))

	s = servertest.Run(t, func(o *server.Options) { o.DataDir, o.SimulatedNodes = dir, 1 })
	client = workloadtest.Client(t, s)
	if after := nodesAwait(t, client, 1); after[0].UID != before[0].UID {
		t.Errorf("the node %s is another one", after[0].Name)
	}
	nodesCreatePod(t, client, nodesPod("new"))
	added := nodesAwaitPod(t, client, "new", pods.Ready)
	nodesAwaitPodGone(t, client, "goes")
	is := nodesAwaitPod(t, client, "stays", pods.Ready)
	if is.ResourceVersion != was.ResourceVersion {
		t.Errorf("the pod has changed from %+v to %+v", was.Status, is.Status)
	}
	if added.Status.PodIP == is.Status.PodIP {
		t.Errorf("two pods have the address %s", is.Status.PodIP)
	}
}

// TestSimulatedKubeletAPI asks for what a kubelet would answer.
func TestSimulatedKubeletAPI(t *testing.T) {
	t.Parallel()
	client := nodesSimulate(t, 1)
	nodesCreatePod(t, client, nodesPod("app"))
	nodesAwaitPod(t, client, "app", pods.Ready)
	core := client.CoreV1().RESTClient()
	log, err := core.Get().Namespace("default").Resource("pods").Name("app").SubResource("log").
		DoRaw(t.Context())
	workloadtest.OK(t, err)
	if !strings.Contains(string(log), "simulates node simulated-0") ||
		strings.Count(string(log), "\n") != 1 {
		t.Errorf("the log is %q", log)
	}
	for _, subresource := range []string{"exec", "attach", "portforward"} {
		err := core.Post().Namespace("default").Resource("pods").Name("app").SubResource(subresource).
			Param("container", "c").Param("command", "id").Do(t.Context()).Error()
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "pod app is simulated") {
			t.Errorf("%s: %v", subresource, err)
		}
	}
	nodesCreatePod(t, client, nodesPod("pulling", nodesAnnotated("image-pull-error", "true")))
	nodesAwaitPod(t, client, "pulling", nodesPodWaits("ImagePullBackOff"))
	err = client.CoreV1().Pods("default").GetLogs("pulling", &corev1.PodLogOptions{}).Do(t.Context()).
		Error()
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "waiting to start") {
		t.Errorf("log of a container that has not started: %v", err)
	}
}
