package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// A large list starts a watch cache, from which the next lists are read. They still see every
// change that was acknowledged before, also while other kinds change.
func TestLargeListsAreConsistent(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	config, err := s.InProcessConfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	secrets := client.CoreV1().Secrets(metav1.NamespaceDefault)
	create := func(name string) {
		t.Helper()
		if _, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	count := func(options metav1.ListOptions) int {
		t.Helper()
		list, err := secrets.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	isCached := func() bool {
		return slices.Contains(up(s, "the test").storage.Cached(),
			schema.GroupResource{Resource: "secrets"})
	}
	const large = 500
	for i := range large - 1 {
		create(fmt.Sprintf("s-%d", i))
	}
	if n := count(metav1.ListOptions{}); n != large-1 {
		t.Fatalf("%d secrets, want %d", n, large-1)
	}
	if isCached() {
		t.Error("a small list started a watch cache")
	}
	create("last")
	count(metav1.ListOptions{})
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return isCached(), nil }); err != nil {
		t.Fatal("no watch cache after a large list")
	}
	for i := range 50 {
		name := fmt.Sprintf("more-%d", i)
		create(name)
		if n := count(metav1.ListOptions{}); n != large+1 {
			t.Fatalf("%d secrets after a create, want %d", n, large+1)
		}
		if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{},
		); err != nil {
			t.Fatal(err)
		}
		if n := count(metav1.ListOptions{LabelSelector: "name=" + name}); n != 1 {
			t.Fatalf("%d secrets %s, want 1", n, name)
		}
		if err := secrets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := count(metav1.ListOptions{}); n != large {
			t.Fatalf("%d secrets after a deletion, want %d", n, large)
		}
	}
	// pages are not affected
	page, err := secrets.List(t.Context(), metav1.ListOptions{Limit: 10})
	if err != nil || len(page.Items) != 10 || page.Continue == "" {
		t.Errorf("a page of 10 has %d secrets, continue %q, %v", len(page.Items), page.Continue, err)
	}
}

// The pages of a long list have each object once, and say exactly how many follow, also after
// objects have been created and deleted.
func TestPagesOfALongList(t *testing.T) {
	t.Parallel()
	const long, limit = 2300, 500
	s := start(t, Options{})
	config, err := s.InProcessConfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	secrets := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets(metav1.NamespaceDefault)
	create := func(name string) {
		t.Helper()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range long {
		create(fmt.Sprintf("s-%d", i))
	}
	for round := range 3 { // etcd itself counts the keys for the first page only
		names := map[string]bool{}
		for token := ""; ; {
			page, err := secrets.List(t.Context(), metav1.ListOptions{Limit: limit, Continue: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range page.Items {
				names[secret.Name] = true
			}
			rest := page.RemainingItemCount
			if token = page.Continue; token == "" {
				if rest != nil {
					t.Errorf("%d secrets follow the last page", *rest)
				}
				break
			}
			if rest == nil || len(names)+int(*rest) != long {
				t.Fatalf("round %d: %v secrets follow %d of %d", round, rest, len(names), long)
			}
		}
		if len(names) != long {
			t.Errorf("got %d secrets, want %d", len(names), long)
		}
		create(fmt.Sprintf("new-%d", round))
		if err := secrets.Delete(t.Context(), fmt.Sprintf("s-%d", 700*round),
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
