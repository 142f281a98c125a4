package looptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/nodes/tainteviction"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

var taintEvictionTaints = []corev1.Taint{{Key: "gone", Effect: corev1.TaintEffectNoExecute}}

// taintEvictionTolerates returns tolerations of the taint for a time, or for ever if it is nil.
func taintEvictionTolerates(seconds *int64) []corev1.Toleration {
	return []corev1.Toleration{{
		Key: "gone", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: seconds,
	}}
}

func TestTaintEviction(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.SimulatedNodes, o.Controllers = 1, []string{tainteviction.Name, "serviceaccount"}
	})
	client := workloadtest.Client(t, s)
	pods := client.CoreV1().Pods("default")
	taint := func(taints string) {
		t.Helper()
		workloadtest.Until(t, func(ctx context.Context) string {
			n, err := client.CoreV1().Nodes().Get(ctx, "simulated-0", metav1.GetOptions{})
			if err == nil && (len(n.Spec.Taints) == 0 || taints == "[]") {
				_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType,
					[]byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
				workloadtest.OK(t, err)
				return ""
			}
			return fmt.Sprintf("%v; %+v", err, n)
		})
	}
	for name, tolerations := range map[string][]corev1.Toleration{
		"none": nil, "second": taintEvictionTolerates(new(int64(1))),
		"hour":    taintEvictionTolerates(new(int64(3600))),
		"forever": taintEvictionTolerates(nil), "ages": taintEvictionTolerates(new(int64(1 << 40))),
		"first": append(taintEvictionTolerates(nil), taintEvictionTolerates(new(int64(0)))...),
	} {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName: "simulated-0", Containers: []corev1.Container{{Name: "c", Image: "i"}},
				Tolerations: tolerations,
			},
		}, metav1.CreateOptions{})
		workloadtest.OK(t, err)
	}
	_, err := pods.Patch(t.Context(), "none", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{})
	workloadtest.OK(t, err)
	tainted := time.Now()
	taint(`[{"key":"gone","effect":"NoExecute"}]`)
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := pods.Get(ctx, "none", metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp != nil && slices.ContainsFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool {
				return c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByTaintManager"
			}) {
			return ""
		}
		return fmt.Sprintf("%v; %+v", err, p)
	})
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := pods.Get(ctx, "second", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v; %+v", err, p)
	})
	if took := time.Since(tainted); took < time.Second {
		t.Errorf("a pod that tolerates the taint for a second was deleted after %v", took)
	}
	taint("[]")
	workloadtest.Until(t, func(ctx context.Context) string {
		events, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		workloadtest.OK(t, err)
		var all []string
		for _, e := range events.Items {
			all = append(all, e.Reason+" "+e.Message)
		}
		for _, message := range []string{
			"Marking for deletion Pod default/none", "Marking for deletion Pod default/second",
			"Cancelling deletion of Pod default/hour",
		} {
			if !slices.Contains(all, "TaintManagerEviction "+message) {
				return strings.Join(all, "\n")
			}
		}
		return ""
	})
	for _, name := range []string{"hour", "forever", "ages", "first"} {
		if p, err := pods.Get(t.Context(), name, metav1.GetOptions{}); err != nil ||
			p.DeletionTimestamp != nil {
			t.Errorf("%s: %v; %+v", name, err, p)
		}
	}
}

// taintEvictionCluster is a control plane in which a test runs the controller.
type taintEvictionCluster struct{ workloadtest.Cluster }

func taintEvictionAlone(t *testing.T) taintEvictionCluster {
	t.Helper()
	return taintEvictionCluster{workloadtest.NewCluster(t)}
}

// run runs a controller with a client until stop is called or the test ends. Events get the events
// that it records.
func (c taintEvictionCluster) run(client kubernetes.Interface) (events <-chan string, stop func()) {
	c.Helper()
	d, events := workloadtest.Dependencies(client)
	return events, workloadtest.Start(c.T, d, tainteviction.Loop())
}

// node creates a node with taints, instead of an earlier one.
func (c taintEvictionCluster) node(name string, taints []corev1.Taint) {
	c.Helper()
	nodes := c.CoreV1().Nodes()
	if err := nodes.Delete(c.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		workloadtest.OK(c.T, err)
	}
	n := workloadtest.Must(nodes.Create(c.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(c.T)
	n.Spec.Taints = taints
	workloadtest.Must(nodes.Update(c.Context(), n, metav1.UpdateOptions{}))(c.T)
}

// pod creates a pod on a node, instead of an earlier one.
func (c taintEvictionCluster) pod(
	ctx context.Context, name, node string, tolerations []corev1.Toleration,
) error {
	pods := c.CoreV1().Pods("default")
	err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Tolerations: tolerations,
		},
	}, metav1.CreateOptions{})
	return err
}

func taintEvictionTouched(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil || slices.ContainsFunc(p.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
}

// evicted waits until a pod is evicted.
func (c taintEvictionCluster) evicted(name string) *corev1.Pod {
	c.Helper()
	return workloadtest.Await(c.T, "eviction of "+name,
		func(ctx context.Context) (*corev1.Pod, error) {
			return c.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		}, func(p *corev1.Pod) bool { return taintEvictionTouched(p) && p.DeletionTimestamp != nil })
}

func (c taintEvictionCluster) untouched(names ...string) {
	c.Helper()
	for _, name := range names {
		p := workloadtest.Must(c.CoreV1().Pods("default").Get(c.Context(), name,
			metav1.GetOptions{}))(c.T)
		if taintEvictionTouched(p) {
			c.Errorf("%s was touched: %+v", name, p)
		}
	}
}

// TestTaintEvictionRaces changes a pod when the controller is about to evict it.
func TestTaintEvictionRaces(t *testing.T) {
	t.Parallel()
	for _, request := range []struct{ method, suffix string }{
		{"PUT", "/pods/p/status"}, {"DELETE", "/pods/p"},
	} {
		t.Run("recreated before "+request.method, func(t *testing.T) {
			t.Parallel()
			c := taintEvictionAlone(t)
			c.node("n", taintEvictionTaints)
			workloadtest.OK(t, c.pod(t.Context(), "p", "n", nil))
			client, done := workloadtest.Meanwhile(t, c.Server, request.method, request.suffix,
				func(ctx context.Context) error { return c.pod(ctx, "p", "n", taintEvictionTolerates(nil)) })
			c.run(client)
			<-done
			// The controller goes on.
			workloadtest.OK(t, c.pod(t.Context(), "q", "n", nil))
			c.evicted("q")
			c.untouched("p")
		})
	}
	t.Run("status written", func(t *testing.T) {
		t.Parallel()
		c := taintEvictionAlone(t)
		c.node("n", taintEvictionTaints)
		workloadtest.OK(t, c.pod(t.Context(), "p", "n", nil))
		client, _ := workloadtest.Meanwhile(t, c.Server, "PUT", "/pods/p/status",
			func(ctx context.Context) error {
				_, err := c.CoreV1().Pods("default").Patch(ctx, "p", types.MergePatchType,
					[]byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
				return err
			})
		c.run(client)
		if p := c.evicted("p"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("the status of the kubelet was overwritten: %+v", p.Status)
		}
	})
}

// TestTaintEvictionNodeRecreated has a pod that tolerates the taints of a node for an hour. The
// time ends with the node.
func TestTaintEvictionNodeRecreated(t *testing.T) {
	t.Parallel()
	c := taintEvictionAlone(t)
	c.node("n", taintEvictionTaints)
	workloadtest.OK(t, c.pod(t.Context(), "hour", "n", taintEvictionTolerates(new(int64(3600)))))
	events, _ := c.run(c)
	workloadtest.OK(t, c.pod(t.Context(), "none", "n", nil))
	c.evicted("none") // so the controller has seen the other pod
	c.node("n", nil)
	want := "Normal TaintManagerEviction Cancelling deletion of Pod default/hour"
	for {
		select {
		case event := <-events:
			if event == want {
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatal("the eviction was not cancelled")
		}
	}
}

// TestTaintEvictionRestart changes what there is while no controller runs.
func TestTaintEvictionRestart(t *testing.T) {
	t.Parallel()
	c := taintEvictionAlone(t)
	c.node("tainted", taintEvictionTaints)
	c.node("clean", nil)
	for name, on := range map[string]struct {
		node        string
		tolerations []corev1.Toleration
	}{
		"second": {"tainted", taintEvictionTolerates(new(int64(3600)))}, // a second, later
		"hour":   {"tainted", taintEvictionTolerates(new(int64(3600)))},
		"stays":  {"tainted", taintEvictionTolerates(nil)},
		"none":   {"clean", nil},
		"loses":  {"clean", taintEvictionTolerates(nil)},
	} {
		workloadtest.OK(t, c.pod(t.Context(), name, on.node, on.tolerations))
	}
	_, stop := c.run(c)
	workloadtest.OK(t, c.pod(t.Context(), "first", "tainted", nil))
	c.evicted("first")
	c.untouched("second", "hour", "stays", "none", "loses")
	stop()
	workloadtest.Must(c.CoreV1().Pods("default").Patch(t.Context(), "second", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/tolerations/0/tolerationSeconds","value":1}]`),
		metav1.PatchOptions{}))(t)
	// The nodes change their roles, and two pods are others now.
	c.node("tainted", nil)
	c.node("clean", taintEvictionTaints)
	workloadtest.OK(t, c.pod(t.Context(), "loses", "clean", nil))
	workloadtest.OK(t, c.pod(t.Context(), "first", "tainted", nil))
	workloadtest.OK(t, c.pod(t.Context(), "new", "clean", taintEvictionTolerates(new(int64(3600)))))
	started := time.Now()
	c.run(c)
	for _, name := range []string{"none", "loses"} {
		c.evicted(name)
	}
	// When this pod goes, the pod that tolerated the taint for a second would have gone, too.
	workloadtest.OK(t, c.pod(t.Context(), "last", "clean", taintEvictionTolerates(new(int64(1)))))
	c.evicted("last")
	if took := time.Since(started); took < time.Second {
		t.Errorf("a pod that tolerates the taint for a second was deleted after %v", took)
	}
	c.untouched("first", "second", "hour", "stays", "new")
}
