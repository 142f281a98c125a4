package server

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// A kind that is not watched has no watch cache, and therefore no etcd watch, no goroutines and no
// memory that grows with its objects.
func TestOnlyWatchedKindsHaveWatchCaches(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	cached := func() []string {
		var names []string
		for _, resource := range up(s, "the test").storage.Cached() {
			names = append(names, resource.String())
		}
		slices.Sort(names)
		return names
	}
	before := cached()
	if len(before) > 0 {
		t.Errorf("cached from the start: %v", before)
	}
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	if _, err := client.AppsV1().Deployments(metav1.NamespaceDefault).List(t.Context(),
		metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if after := cached(); !slices.Equal(after, before) {
		t.Errorf("cached after a list: %v, before: %v", after, before)
	}
	w, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Watch(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if after := cached(); !slices.Contains(after, "deployments.apps") {
		t.Errorf("deployments are watched but have no cache: %v", after)
	}

	// Events never have a watch cache, as in kube-apiserver. This shows in the response to an
	// invalid resource version.
	events, err := client.CoreV1().Events(metav1.NamespaceDefault).Watch(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if after := cached(); slices.Contains(after, "events") {
		t.Error("events have a watch cache")
	}
	_, err = client.CoreV1().Events(metav1.NamespaceDefault).Get(t.Context(), "e",
		metav1.GetOptions{ResourceVersion: "v"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("an event at version v: %v", err)
	}
	for _, check := range []string{"/livez/etcd", "/readyz/etcd-readiness"} {
		var last error
		if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) { // it fails while etcd is slow
				last = client.RESTClient().Get().AbsPath(check).Do(ctx).Error()
				return last == nil, nil
			}); err != nil {
			t.Errorf("%s: %v", check, last)
		}
	}
}
