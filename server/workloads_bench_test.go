package server_test

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// BenchmarkDeployment measures how long it takes until a new Deployment of three replicas is
// available.
func BenchmarkDeployment(b *testing.B) {
	client := kubernetes.NewForConfigOrDie(servertest.Run(b, servertest.Workloads).RESTConfig())
	awaitReadyNodes(b, client, 1)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		name := deploy(b, client, "web", 3)
		awaitAvailable(b, client, name)
		took = append(took, time.Since(began))
		undeploy(b, client, name)
	}
	reportMedian(b, "available-ms", took)
}

// BenchmarkThousandPods measures how long it takes until 100 simulated nodes are ready, until a
// Deployment of 1,000 replicas is available on them, and until all of that is gone again.
func BenchmarkThousandPods(b *testing.B) {
	var nodes, available, gone []time.Duration
	for b.Loop() {
		began := time.Now()
		s := servertest.Run(b, servertest.Workloads, func(o *server.Options) { o.SimulatedNodes = 100 })
		client := kubernetes.NewForConfigOrDie(s.RESTConfig())
		awaitReadyNodes(b, client, 100)
		nodes = append(nodes, time.Since(began))

		began = time.Now()
		name := deploy(b, client, "web", 1000)
		awaitAvailable(b, client, name)
		available = append(available, time.Since(began))

		began = time.Now()
		undeploy(b, client, name)
		gone = append(gone, time.Since(began))
		if err := s.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	reportMedian(b, "nodes-ms", nodes)
	reportMedian(b, "available-ms", available)
	reportMedian(b, "gone-ms", gone)
}

// deploy creates a Deployment, and returns its name.
func deploy(b *testing.B, client kubernetes.Interface, name string, replicas int32) string {
	b.Helper()
	labels := map[string]string{"app": name}
	_, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Create(b.Context(),
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
				},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return name
}

// undeploy deletes a Deployment in the foreground, and waits until it is gone.
func undeploy(b *testing.B, client kubernetes.Interface, name string) {
	b.Helper()
	foreground := metav1.DeletePropagationForeground
	deployments := client.AppsV1().Deployments(metav1.NamespaceDefault)
	if err := deployments.Delete(b.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		b.Fatal(err)
	}
	awaitDeployment(b, client, name, func(d *appsv1.Deployment) bool { return d == nil })
}

func awaitAvailable(b *testing.B, client kubernetes.Interface, name string) {
	b.Helper()
	awaitDeployment(b, client, name, func(d *appsv1.Deployment) bool {
		return d != nil && d.Status.AvailableReplicas == *d.Spec.Replicas
	})
}

// awaitDeployment waits until done accepts a Deployment, which is nil if it does not exist.
func awaitDeployment(
	b *testing.B, client kubernetes.Interface, name string, done func(*appsv1.Deployment) bool,
) {
	b.Helper()
	list := cache.NewFilteredListWatchFromClient(client.AppsV1().RESTClient(), "deployments",
		metav1.NamespaceDefault, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		})
	await(b, list, &appsv1.Deployment{}, func(objects []any) bool {
		if len(objects) == 0 {
			return done(nil)
		}
		return done(objects[0].(*appsv1.Deployment))
	})
}

func awaitReadyNodes(b *testing.B, client kubernetes.Interface, n int) {
	b.Helper()
	list := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "",
		fields.Everything())
	await(b, list, &corev1.Node{}, func(objects []any) bool {
		ready := 0
		for _, o := range objects {
			for _, c := range o.(*corev1.Node).Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		return ready == n
	})
}

// await waits until done accepts the objects of a list.
func await(
	b *testing.B, list *cache.ListWatch, example runtime.Object, done func([]any) bool,
) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	var store cache.Store
	_, err := watchtools.UntilWithSync(ctx, list, example,
		func(s cache.Store) (bool, error) {
			store = s
			return done(s.List()), nil
		}, func(watch.Event) (bool, error) { return done(store.List()), nil })
	if err != nil {
		b.Fatal(err)
	}
}
