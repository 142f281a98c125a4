package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// large is what a ConfigMap has in these tests: a quarter of a megabyte, which differs for each
// number. Etcd's database file gets the neighbours of an object anew with each update, so there is
// much more to remove if they are larger, which takes the race detector minutes.
func large(i int) map[string]string {
	return map[string]string{"a": fmt.Sprint(i, strings.Repeat("Q", 250_000))}
}

// room returns how full the database of a control plane is.
func room(t *testing.T, client kubernetes.Interface) (r embed.Room) {
	t.Helper()
	answer, err := client.Discovery().RESTClient().Get().AbsPath("/kinproc/v1/database").
		DoRaw(t.Context())
	if err == nil {
		err = json.Unmarshal(answer, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fill creates large ConfigMaps, with numbers from first to last, until one is refused. It returns
// how many have been created, and the error. That etcd gives up a write after some seconds, because
// the disk is busy, is no refusal.
func fill(t *testing.T, client kubernetes.Interface, first, last int) (n int, err error) {
	t.Helper()
	for i := first; i <= last; i++ {
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i)}, Data: large(i),
		}, metav1.CreateOptions{})
		switch {
		case err == nil:
			n++
		case !strings.Contains(err.Error(), rpctypes.ErrTimeout.Error()):
			return n, err
		}
	}
	return n, nil
}

// expectFull checks the error of a request for which there is no room.
func expectFull(t *testing.T, err error) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInsufficientStorage ||
		status.Status().Reason != "StorageError" ||
		!strings.Contains(err.Error(), "--quota-backend-bytes") {
		t.Errorf("the database should be full: %v", err)
	}
}

// Old versions of one object do not fill the database, whatever keeps the data.
func TestAttackUpdatesFillDatabase(t *testing.T) {
	t.Parallel()
	const updates = 150
	for _, dir := range []string{"", t.TempDir()} {
		_, client := quiet(t, func(o *server.Options) {
			o.DataDir, o.QuotaBackendBytes = dir, 16<<20
		})
		maps := client.CoreV1().ConfigMaps("default")
		object, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "large"},
		}, metav1.CreateOptions{})
		for i := range updates {
			if err != nil {
				t.Fatalf("update %d: %v", i, err)
			}
			object.Data = large(i)
			object, err = maps.Update(t.Context(), object, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := room(t, client); r.Quota != 16<<20 || r.File > r.Limit {
			t.Errorf("after %d updates: %+v", updates, r)
		}
	}
}

// When objects fill the database, reads and deletions go on, also those that have to write, and so
// does everything once there is room. Another start succeeds.
func TestAttackObjectsFillDatabase(t *testing.T) {
	t.Parallel()
	options := func(o *server.Options) { o.QuotaBackendBytes = 24 << 20 }
	dir := t.TempDir()
	s, client := quiet(t, options, func(o *server.Options) { o.DataDir = dir })
	maps := client.CoreV1().ConfigMaps("default")
	for _, name := range []string{"finalized", "shrinking"} {
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/wait"}},
			Data:       large(0),
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n, err := fill(t, client, 1, 160)
	expectFull(t, err)
	if n < 40 {
		t.Errorf("only %d objects of a quarter of a megabyte fit into 24 MiB", n)
	}

	if list, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) < n {
		t.Errorf("a list while the database is full: %v", err)
	}
	_, err = maps.Patch(t.Context(), "shrinking", types.MergePatchType,
		[]byte(`{"data":{"b":"`+strings.Repeat("b", 40_000)+`"}}`), metav1.PatchOptions{})
	expectFull(t, err)
	if err := maps.Delete(t.Context(), "finalized", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete what has a finalizer: %v", err)
	}
	for _, name := range []string{"finalized", "shrinking"} {
		if _, err := maps.Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null},"data":null}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("a patch that makes %s smaller: %v", name, err)
		}
	}
	for _, name := range []string{"large-8", "large-9"} {
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	// Now there is room for some.
	more, err := fill(t, client, 201, 360)
	expectFull(t, err)
	if more == 0 {
		t.Error("nothing can be created although objects have been deleted")
	}

	// Nothing has to be written before there is room.
	if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	for i, quota := range []int64{24 << 20, 16 << 20, 64 << 20} {
		s, client = quiet(t, func(o *server.Options) { o.DataDir, o.QuotaBackendBytes = dir, quota })
		name := fmt.Sprint("large-", i+1)
		err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{})
		if err != nil {
			t.Errorf("delete with a quota of %d: %v", quota, err)
		}
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

// A control plane starts even if etcd itself refuses to write because its database is full.
func TestStartOnFullDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.DataDir, o.QuotaBackendBytes, o.ListenEtcd = dir, 16<<20, "127.0.0.1:0"
	})
	etcd := etcdClient(t, s, etcdTLS(t, s))
	var err error
	for i := 0; (err == nil || errors.Is(err, rpctypes.ErrTimeout)) && i < 100; i++ {
		_, err = etcd.Put(t.Context(), "/registry/other", strings.Repeat("x", 1<<20))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("the database should be full: %v", err)
	}
	if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, client := quiet(t, func(o *server.Options) { o.DataDir, o.QuotaBackendBytes = dir, 16<<20 })
	if _, err := fill(t, client, 1, 1); err != nil {
		t.Errorf("there is room after a start: %v", err)
	}
}
