package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// Informers list with a watch that starts at the current resource version. The watch must not have
// to wait for the next change of any object: a watch cache that was started after the last change
// once kept all other caches from learning that they were up to date, and such a watch failed after
// three seconds.
func TestWatchListBeginsThoughNothingChanges(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	core := client.CoreV1()
	first, err := core.LimitRanges("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	// The cache of limit ranges does not see this change.
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if _, err := core.ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), config,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The cache of replication controllers is started after the change.
	last, err := core.ReplicationControllers("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer last.Stop()

	yes := true
	list, err := core.LimitRanges("").Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents:    &yes,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Stop()
	if event := <-list.ResultChan(); event.Type != watch.Bookmark {
		t.Errorf("the first event is %s: %v", event.Type, event.Object)
	}
}
