package conformance_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

func realSnapshot(t *testing.T) *server.Snapshot {
	t.Helper()
	snapshot, err := server.ReadSnapshot(bytes.NewReader(unzip(t, realCluster+"snapshot.db.gz")))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// A read-only control plane that begins with the snapshot of a real cluster lists exactly what that
// cluster listed, at the latest resource version and from watch caches.
func TestBrowsesARealClustersSnapshot(t *testing.T) {
	t.Parallel()
	var lists map[string]unstructured.UnstructuredList
	if err := json.Unmarshal(unzip(t, realCluster+"lists.json.gz"), &lists); err != nil {
		t.Fatal(err)
	}
	s := servertest.Run(t, func(o *server.Options) { o.From, o.ReadOnly = realSnapshot(t), true })
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	items := 0
	for _, version := range []string{"", "0"} {
		for path, want := range lists {
			if path == "/api/v1/componentstatuses" {
				continue // component statuses are computed for each request
			}
			data, err := client.RESTClient().Get().AbsPath(path).Param("resourceVersion", version).
				SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(t.Context())
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			var got unstructured.UnstructuredList
			if err := json.Unmarshal(data, &got); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if !reflect.DeepEqual(names(got), names(want)) {
				t.Errorf("%s: got %s, want %s", path, names(got), names(want))
				continue
			}
			for i := range want.Items {
				if !reflect.DeepEqual(got.Items[i].Object, want.Items[i].Object) {
					t.Errorf("%s: %s/%s differs:\n%s", path, want.Items[i].GetNamespace(),
						want.Items[i].GetName(), diff.Diff(want.Items[i].Object, got.Items[i].Object))
				}
				items++
			}
		}
	}
	if want := 2 * 323; items != want {
		t.Errorf("compared %d items, want %d", items, want)
	}
	maps := client.CoreV1().ConfigMaps("default")
	for what, write := range map[string]func(dryRun []string) error{
		"create": func(dryRun []string) error {
			_, err := maps.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "new"},
			}, metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"delete": func(dryRun []string) error {
			return maps.Delete(t.Context(), "kube-root-ca.crt", metav1.DeleteOptions{DryRun: dryRun})
		},
		"delete all": func(dryRun []string) error {
			return maps.DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun},
				metav1.ListOptions{})
		},
	} {
		for _, dryRun := range [][]string{nil, {"All"}} {
			if err := write(dryRun); !apierrors.IsForbidden(err) ||
				!strings.Contains(err.Error(), "the control plane is read-only") {
				t.Errorf("%s, dry run %v: %v", what, dryRun, err)
			}
		}
	}
	if err := s.Reset(t.Context(), realSnapshot(t)); err == nil {
		t.Error("a read-only control plane was reset")
	}
}

func names(list unstructured.UnstructuredList) []string {
	var all []string
	for _, i := range list.Items {
		all = append(all, i.GetNamespace()+"/"+i.GetName())
	}
	return all
}

// A running control plane can be reset to a real cluster's state, and back.
func TestResetsToARealClustersSnapshot(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deployments := func() int {
		list, err := client.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	for range 2 {
		if err := s.Reset(t.Context(), realSnapshot(t)); err != nil {
			t.Fatal(err)
		}
		if deployments() == 0 {
			t.Error("there are no deployments")
		}
		if err := s.Reset(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		if n := deployments(); n != 0 {
			t.Errorf("%d deployments are left", n)
		}
	}
}
