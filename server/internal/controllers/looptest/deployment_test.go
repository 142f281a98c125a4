package looptest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/deployments"
	"github.com/kinproc/kinproc/server/internal/controllers/apps/replicasets"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

var deploymentControllers = []string{deployments.Name, replicasets.Name}

// deploymentOf returns the Deployment "web".
func deploymentOf(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: workloadtest.Template(labels),
		},
	}
}

// deploymentCluster is a namespace with a Deployment.
type deploymentCluster struct {
	workloadtest.Workload[*appsv1.Deployment]
}

func deploymentIn(
	t testing.TB, client kubernetes.Interface, namespace string,
) deploymentCluster {
	return deploymentCluster{workloadtest.Workload[*appsv1.Deployment]{
		TB: t, Client: client, Namespace: namespace, App: "web",
		API: client.AppsV1().Deployments(namespace),
	}}
}

// deploymentShared returns a namespace of the shared control plane in which the wanted pods become
// ready.
func deploymentShared(t *testing.T, wanted ...func(*corev1.Pod) bool) deploymentCluster {
	t.Helper()
	client, namespace := shared(t)
	workloadtest.Kubelet(t, client, namespace, wanted...)
	return deploymentIn(t, client, namespace)
}

func deploymentCondition(d *appsv1.Deployment, which appsv1.DeploymentConditionType) string {
	for _, c := range d.Status.Conditions {
		if c.Type == which {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// complete awaits the end of a rollout.
func (c deploymentCluster) complete(replicas int32) *appsv1.Deployment {
	c.Helper()
	return c.Await("a complete rollout", func(d *appsv1.Deployment) bool {
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == replicas &&
			s.Replicas == replicas && s.AvailableReplicas == replicas && s.UnavailableReplicas == 0 &&
			deploymentCondition(d, appsv1.DeploymentProgressing) == "True NewReplicaSetAvailable"
	})
}

// remove deletes the Deployment and waits until it is gone. Orphans have no owner then.
func (c deploymentCluster) remove(policy metav1.DeletionPropagation) {
	c.Helper()
	deployments := c.Client.AppsV1().Deployments(c.Namespace)
	workloadtest.OK(c, deployments.Delete(c.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: &policy}))
	workloadtest.Await(c, "the end of the Deployment",
		func(ctx context.Context) (*appsv1.DeploymentList, error) {
			return deployments.List(ctx, metav1.ListOptions{})
		}, func(list *appsv1.DeploymentList) bool { return len(list.Items) == 0 })
}

// sets returns the ReplicaSets by their images.
func (c deploymentCluster) sets() map[string]appsv1.ReplicaSet {
	c.Helper()
	list := workloadtest.Must(c.Client.AppsV1().ReplicaSets(c.Namespace).List(c.Context(),
		metav1.ListOptions{}))(c)
	sets := map[string]appsv1.ReplicaSet{}
	for _, rs := range list.Items {
		sets[rs.Spec.Template.Spec.Containers[0].Image] = rs
	}
	return sets
}

func (c deploymentCluster) events() []string {
	c.Helper()
	list := workloadtest.Must(c.Client.CoreV1().Events(c.Namespace).List(c.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Deployment"}))(c)
	var found []string
	for _, e := range list.Items {
		found = append(found, e.Source.Component+" "+e.Reason+" "+e.Message)
	}
	return found
}

func TestDeploymentRollingUpdate(t *testing.T) {
	t.Parallel()
	c := deploymentShared(t)
	d := deploymentOf(4)
	d.Annotations = map[string]string{"kubernetes.io/change-cause": "first"}
	d.Spec.RevisionHistoryLimit = new(int32(1))
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
		MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
	}
	c.Create(d)
	d = c.complete(4)
	got := deploymentCondition(d, appsv1.DeploymentAvailable)
	if got != "True MinimumReplicasAvailable" {
		t.Errorf("the condition Available is %s", got)
	}
	first := c.sets()["i:1"]
	hash := first.Labels["pod-template-hash"]
	if first.Name != "web-"+hash || first.Spec.Selector.MatchLabels["pod-template-hash"] != hash ||
		first.Spec.Template.Labels["pod-template-hash"] != hash {
		t.Errorf("the ReplicaSet is %+v", first)
	}
	if want := map[string]string{
		"deployment.kubernetes.io/revision": "1", "deployment.kubernetes.io/desired-replicas": "4",
		"deployment.kubernetes.io/max-replicas": "5", "kubernetes.io/change-cause": "first",
	}; !maps.Equal(first.Annotations, want) {
		t.Errorf("the annotations are %v, want %v", first.Annotations, want)
	}

	// Never less than four are available. There may be more than five for a moment, because a set
	// may grow before another one has deleted its pods.
	watched, err := c.Client.CoreV1().Pods(c.Namespace).Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Image("i:2")
	d = c.complete(4)
	defer watched.Stop()
	ready, begun, gone := map[string]bool{}, false, 0
	for gone < 4 { // until the last pod of the first set is gone
		e := <-watched.ResultChan()
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("the watch of pods got %+v", e)
		}
		switch {
		case e.Type == watch.Bookmark:
			begun = true
			continue
		case e.Type == watch.Deleted:
			gone++
			fallthrough
		case pod.DeletionTimestamp != nil:
			delete(ready, pod.Name)
		default:
			ready[pod.Name] = pods.Ready(pod)
		}
		var n int
		for _, is := range ready {
			if is {
				n++
			}
		}
		if begun && n < 4 {
			t.Errorf("%d of %d pods are ready", n, len(ready))
		}
	}
	sets := c.sets()
	if *sets["i:1"].Spec.Replicas != 0 || *sets["i:2"].Spec.Replicas != 4 ||
		d.Annotations["deployment.kubernetes.io/revision"] != "2" {
		t.Errorf("the ReplicaSets are %v and the revision is %v", sets, d.Annotations)
	}

	// Back to the first template: its set gets a new revision.
	c.Image("i:1")
	d = c.complete(4)
	sets = c.sets()
	if a := sets["i:1"].Annotations; a["deployment.kubernetes.io/revision"] != "3" ||
		a["deployment.kubernetes.io/revision-history"] != "1" ||
		d.Annotations["deployment.kubernetes.io/revision"] != "3" || sets["i:1"].UID != first.UID {
		t.Errorf("the annotations are %v", a)
	}
	// Only one old set is kept.
	c.Image("i:3")
	c.complete(4)
	workloadtest.Await(t, "the first of the old sets to be deleted",
		func(context.Context) (int, error) { return len(c.sets()), nil },
		func(n int) bool { return n == 2 })
	if _, ok := c.sets()["i:2"]; ok {
		t.Error("not the oldest revision was deleted")
	}
	want := "deployment-controller ScalingReplicaSet Scaled up replica set " + first.Name +
		" from 0 to 4"
	workloadtest.Await(t, "the event "+want,
		func(context.Context) ([]string, error) { return c.events(), nil },
		func(events []string) bool { return slices.Contains(events, want) })
}

func TestDeploymentRecreate(t *testing.T) {
	t.Parallel()
	// The garbage collection of pods is off: it ends the pods that have no node, and then they are
	// not terminating any more.
	_, client := workloadtest.Run(t, deploymentControllers)
	workloadtest.Kubelet(t, client, workloadtest.Namespace)
	c := deploymentIn(t, client, workloadtest.Namespace)
	d := deploymentOf(2)
	d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	// A finalizer keeps the pods in Terminating.
	d.Spec.Template.Finalizers = []string{"example.com/held"}
	c.Create(d)
	c.complete(2)
	c.Image("i:2")
	c.Await("terminating pods", func(d *appsv1.Deployment) bool {
		return d.Status.TerminatingReplicas != nil && *d.Status.TerminatingReplicas == 2 &&
			d.Status.ObservedGeneration == d.Generation
	})
	if _, ok := c.sets()["i:2"]; ok {
		t.Error("there are new pods before the old ones are gone")
	}
	pods := c.Client.CoreV1().Pods(c.Namespace)
	for _, pod := range workloadtest.Must(pods.List(t.Context(), metav1.ListOptions{}))(t).Items {
		workloadtest.Must(pods.Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	}
	c.complete(2)
}

// While the status of an old set still counts pods, though they are gone, there is no new set: the
// status of the Deployment would show both.
func TestDeploymentRecreateCounts(t *testing.T) {
	t.Parallel()
	_, client := workloadtest.Alone(t) // nothing else counts pods
	c := deploymentIn(t, client, workloadtest.Namespace)
	d := deploymentOf(1)
	d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	deploymentRun(t, client)
	c.Create(d)
	c.Await("a set", func(*appsv1.Deployment) bool { return len(c.sets()) == 1 })
	count := func(pods int) {
		t.Helper()
		workloadtest.Must(client.AppsV1().ReplicaSets(c.Namespace).Patch(t.Context(),
			c.sets()["i:1"].Name, types.MergePatchType,
			fmt.Appendf(nil, `{"status":{"replicas":%d}}`, pods),
			metav1.PatchOptions{}, "status"))(t)
	}
	count(1)
	c.Await("a pod", func(d *appsv1.Deployment) bool { return d.Status.Replicas == 1 })
	c.Image("i:2")
	c.Await("scaling", func(*appsv1.Deployment) bool { return *c.sets()["i:1"].Spec.Replicas == 0 })
	c.Patch(`{"spec":{"minReadySeconds":1}}`)
	c.Await("another look", func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation
	})
	if _, ok := c.sets()["i:2"]; ok {
		t.Error("there is a new set while the old one counts a pod")
	}
	count(0)
	c.Await("a new set", func(*appsv1.Deployment) bool { return len(c.sets()) == 2 })
}

func TestDeploymentPauseAndScale(t *testing.T) {
	t.Parallel()
	// Pods with the second image never become ready.
	c := deploymentShared(t, func(p *corev1.Pod) bool {
		return p.Spec.Containers[0].Image != "i:2"
	})
	d := deploymentOf(10)
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
		MaxSurge: new(intstr.FromInt32(3)), MaxUnavailable: new(intstr.FromInt32(2)),
	}
	c.Create(d)
	c.complete(10)
	c.Image("i:2")
	c.Await("an unfinished rollout", func(d *appsv1.Deployment) bool {
		return d.Status.UpdatedReplicas == 5 && d.Status.Replicas == 13
	})
	// Eight old and five new ones; thirty more are spread in proportion.
	c.Patch(`{"spec":{"replicas":30}}`)
	c.Await("proportional scaling", func(d *appsv1.Deployment) bool { return d.Status.Replicas == 33 })
	sets := c.sets()
	if old, current := *sets["i:1"].Spec.Replicas, *sets["i:2"].Spec.Replicas; old != 20 ||
		current != 13 {
		t.Errorf("scaled to %d old and %d new pods", old, current)
	}
	c.Patch(`{"spec":{"paused":true}}`)
	c.Await("pause", func(d *appsv1.Deployment) bool {
		return deploymentCondition(d, appsv1.DeploymentProgressing) == "Unknown DeploymentPaused"
	})
	c.Image("i:3")
	c.Patch(`{"spec":{"replicas":10}}`)
	c.Await("scaling while paused", func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == 13 &&
			d.Status.UpdatedReplicas == 0
	})
	if _, ok := c.sets()["i:3"]; ok {
		t.Error("rolls out while paused")
	}
	c.Patch(`{"spec":{"paused":false}}`)
	c.complete(10)
}

// Loops update objects without the managed fields, which informers leave out. The server keeps
// them.
func TestDeploymentManagedFields(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	c := deploymentIn(t, client, namespace)
	workloadtest.Must(c.API.Create(t.Context(), deploymentOf(1), metav1.CreateOptions{
		FieldManager: "somebody",
	}))(t)
	const revision = "deployment.kubernetes.io/revision" // the loop updates the object for it
	d := c.Await("a revision", func(d *appsv1.Deployment) bool { return d.Annotations[revision] == "1" })
	manager := func(field string) string {
		for _, m := range d.ManagedFields {
			if strings.Contains(string(m.FieldsV1.Raw), `"f:`+field+`"`) {
				return m.Manager
			}
		}
		return ""
	}
	// The status has replicas too, but no selector.
	if got := manager("selector"); got != "somebody" {
		t.Errorf("the manager of the selector is %q, want somebody", got)
	}
	if got := manager(revision); got == "" || got == "somebody" {
		t.Errorf("the manager of the revision is %q, want the loop", got)
	}
}

func TestDeploymentDeadline(t *testing.T) {
	t.Parallel()
	client, namespace := shared(t)
	c := deploymentIn(t, client, namespace)
	d := deploymentOf(1)
	d.Spec.ProgressDeadlineSeconds = new(int32(1))
	c.Create(d)
	d = c.Await("the deadline", func(d *appsv1.Deployment) bool {
		return deploymentCondition(d, appsv1.DeploymentProgressing) == "False ProgressDeadlineExceeded"
	})
	got := deploymentCondition(d, appsv1.DeploymentAvailable)
	if got != "False MinimumReplicasUnavailable" {
		t.Errorf("the condition Available is %s", got)
	}
	workloadtest.Kubelet(t, client, namespace)
	c.complete(1)
}

// A ReplicaSet of somebody else that has the name of a new one is left alone.
func TestDeploymentCollision(t *testing.T) {
	t.Parallel()
	c := deploymentShared(t)
	sets := c.Client.AppsV1().ReplicaSets(c.Namespace)
	c.Create(deploymentOf(1))
	c.complete(1)
	taken := c.sets()["i:1"]
	c.remove(metav1.DeletePropagationOrphan)
	// It is not adopted by a Deployment that selects other pods, but whose template is the same.
	workloadtest.Must(sets.Patch(t.Context(), taken.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"app":"mine"}}}`), metav1.PatchOptions{}))(t)
	c.Create(deploymentOf(2))
	d := c.complete(2)
	if d.Status.CollisionCount == nil || *d.Status.CollisionCount != 1 {
		t.Errorf("the collision count is %v", d.Status.CollisionCount)
	}
	rs := workloadtest.Must(sets.Get(t.Context(), taken.Name, metav1.GetOptions{}))(t)
	if len(rs.OwnerReferences) > 0 || *rs.Spec.Replicas != 1 {
		t.Errorf("the set of somebody else is now %+v", rs)
	}
}

// A Deployment that is deleted and created again rolls out with ReplicaSets of its own, also if one
// that nobody controls has the name and is being deleted. A status that somebody else writes is put
// right.
func TestDeploymentRecreated(t *testing.T) {
	t.Parallel()
	c := deploymentShared(t)
	apps := c.Client.AppsV1()
	deployments, sets := apps.Deployments(c.Namespace), apps.ReplicaSets(c.Namespace)
	c.Create(deploymentOf(2))
	c.complete(2)
	c.remove(metav1.DeletePropagationBackground)
	c.Create(deploymentOf(3))
	d := c.complete(3)
	workloadtest.Await(t, "the end of the first set",
		func(ctx context.Context) (*appsv1.ReplicaSetList, error) {
			return sets.List(ctx, metav1.ListOptions{})
		}, func(list *appsv1.ReplicaSetList) bool {
			// As with kube-controller-manager, whose loop does not wait until it sees what it has
			// created, there may be a set under each of two names: the first was free again when
			// the loop had not seen yet that it has taken the second.
			return !slices.ContainsFunc(list.Items, func(rs appsv1.ReplicaSet) bool {
				return !metav1.IsControlledBy(&rs, d)
			})
		})
	workloadtest.Await(t, "the end of the first pods", func(context.Context) (int, error) {
		return len(workloadtest.Pods(t, c.Client, c.Namespace, "app=web")), nil
	}, func(n int) bool { return n == 3 })

	taken := c.sets()["i:1"].Name
	workloadtest.Must(sets.Patch(t.Context(), taken, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["example.com/held"]}}`), metav1.PatchOptions{}))(t)
	c.remove(metav1.DeletePropagationOrphan)
	workloadtest.OK(t, sets.Delete(t.Context(), taken, metav1.DeleteOptions{}))
	c.Create(deploymentOf(1))
	c.complete(1)

	workloadtest.Must(deployments.Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"status":{"replicas":9,"availableReplicas":0}}`), metav1.PatchOptions{}, "status"))(t)
	c.complete(1)
}

// deploymentRun runs a controller alone, on informers of its own, until stop is called or the test
// ends. Events get the events that it records.
func deploymentRun(t *testing.T, client kubernetes.Interface) (events <-chan string, stop func()) {
	t.Helper()
	d, events := workloadtest.Dependencies(client)
	return events, workloadtest.Start(t, d, deployments.Loop())
}

// A ReplicaSet of somebody else that has the name of a new one is deleted just when the controller
// looks whose it is.
func TestDeploymentNameFreed(t *testing.T) {
	t.Parallel()
	s, client := workloadtest.Alone(t)
	c := deploymentIn(t, client, workloadtest.Namespace)
	sets := c.Client.AppsV1().ReplicaSets(c.Namespace)
	awaitSet := func() {
		t.Helper()
		workloadtest.Await(t, "a set",
			func(context.Context) (int, error) { return len(c.sets()), nil },
			func(n int) bool { return n == 1 })
	}
	_, stop := deploymentRun(t, c.Client)
	c.Create(deploymentOf(1))
	awaitSet()
	stop()
	workloadtest.OK(t, c.Client.AppsV1().Deployments(c.Namespace).Delete(t.Context(), "web",
		metav1.DeleteOptions{}))
	taken := c.sets()["i:1"].Name
	workloadtest.Must(sets.Patch(t.Context(), taken, types.MergePatchType,
		[]byte(`{"metadata":{"labels":null,"ownerReferences":null}}`), metav1.PatchOptions{}))(t)
	client, done := workloadtest.Meanwhile(t, s, "GET", "/replicasets/"+taken,
		func(ctx context.Context) error { return sets.Delete(ctx, taken, metav1.DeleteOptions{}) })
	deploymentRun(t, client)
	c.Create(deploymentOf(1))
	<-done
	awaitSet()
}

// A Deployment in a namespace that is being deleted gets no ReplicaSet, which is not a failure.
func TestDeploymentDyingNamespace(t *testing.T) {
	t.Parallel()
	// Nothing deletes what is in the namespace.
	s, client := workloadtest.Alone(t)
	namespaces, deployments := client.CoreV1().Namespaces(), client.AppsV1().Deployments("dying")
	workloadtest.Must(namespaces.Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dying"}}, metav1.CreateOptions{}))(t)
	workloadtest.Must(deployments.Create(t.Context(), deploymentOf(1), metav1.CreateOptions{}))(t)
	workloadtest.OK(t, namespaces.Delete(t.Context(), "dying", metav1.DeleteOptions{}))
	counted, done := workloadtest.Meanwhile(t, s, "POST", "/namespaces/dying/replicasets",
		func(context.Context) error { return nil })
	events, stop := deploymentRun(t, counted)
	<-done
	c := deploymentIn(t, client, workloadtest.Namespace)
	c.Create(deploymentOf(1))
	workloadtest.Await(t, "a set elsewhere",
		func(context.Context) (int, error) { return len(c.sets()), nil },
		func(n int) bool { return n == 1 })
	stop()
	for len(events) > 0 {
		if event := <-events; strings.Contains(event, "Error") {
			t.Error(event)
		}
	}
	if d := workloadtest.Must(deployments.Get(t.Context(), "web",
		metav1.GetOptions{}))(t); len(d.Status.Conditions) > 0 {
		t.Errorf("the status is %+v", d.Status)
	}
}

// A rollout that a stop interrupts ends after the next start.
func TestDeploymentRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configure := func(o *server.Options) { o.DataDir = dir }
	s, client := workloadtest.Run(t, deploymentControllers, configure)
	c := deploymentIn(t, client, workloadtest.Namespace)
	c.Create(deploymentOf(20))
	c.Await("some pods", func(d *appsv1.Deployment) bool { return len(c.sets()) == 1 })
	if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, client = workloadtest.Run(t, deploymentControllers, configure)
	c = deploymentIn(t, client, workloadtest.Namespace)
	workloadtest.Kubelet(t, client, c.Namespace)
	c.Image("i:2")
	c.complete(20)
	// Of the first set, the last status may be older than its pods.
	workloadtest.Await(t, "twenty pods", func(context.Context) (int, error) {
		return len(workloadtest.Pods(t, client, c.Namespace, "")), nil
	}, func(n int) bool { return n == 20 })
}

// With the start of the control plane, and a status of each pod from outside.
func BenchmarkDeploymentThousand(b *testing.B) {
	for b.Loop() {
		_, client := workloadtest.Run(b, deploymentControllers)
		workloadtest.Kubelet(b, client, workloadtest.Namespace)
		deployments := client.AppsV1().Deployments(workloadtest.Namespace)
		workloadtest.Must(deployments.Create(b.Context(), deploymentOf(1000), metav1.CreateOptions{}))(b)
		workloadtest.Await(b, "pods", func(ctx context.Context) (*appsv1.Deployment, error) {
			return deployments.Get(ctx, "web", metav1.GetOptions{})
		}, func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 1000 })
	}
}

func BenchmarkDeploymentThree(b *testing.B) {
	_, client := workloadtest.Run(b, deploymentControllers)
	workloadtest.Kubelet(b, client, workloadtest.Namespace)
	deployments := client.AppsV1().Deployments(workloadtest.Namespace)
	for i := 0; b.Loop(); i++ {
		d := deploymentOf(3)
		d.Name = fmt.Sprint("web-", i)
		d.Spec.Selector.MatchLabels["i"] = fmt.Sprint(i)
		d.Spec.Template.Labels["i"] = fmt.Sprint(i)
		workloadtest.Must(deployments.Create(b.Context(), d, metav1.CreateOptions{}))(b)
		workloadtest.Await(b, "pods", func(ctx context.Context) (*appsv1.Deployment, error) {
			return deployments.Get(ctx, d.Name, metav1.GetOptions{})
		}, func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 3 })
	}
}
