package apitest

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// in starts a control plane with its data in a directory.
func in(t *testing.T, dir string, configure ...func(*server.Options)) *server.Server {
	t.Helper()
	return servertest.Run(t, append(configure, servertest.WithoutControllers,
		func(o *server.Options) { o.DataDir = dir })...)
}

func halt(t *testing.T, s *server.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ok(t, s.Stop(ctx))
}

// ofLimits returns the history of the config map default/limits.
func ofLimits(t *testing.T, s *server.Server) []history.Version {
	t.Helper()
	return servertest.History(t, s, configMapResource, "default", "limits")
}

// Who wrote each version, and when, is known after a restart.
func TestHistoryAfterRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := in(t, dir)
	writeHistory(t, s.RESTConfig(), "default", "limits")
	before := ofLimits(t, s)
	halt(t, s)
	s = in(t, dir, func(o *server.Options) { o.ReadOnly = true })
	if after := ofLimits(t, s); told(after) != thrice || !reflect.DeepEqual(after, before) {
		t.Errorf("the history was %+v and is %+v", before, after)
	}
	halt(t, s)
	s = in(t, dir)
	writeHistory(t, s.RESTConfig(), "default", "limits")
	if after := ofLimits(t, s); told(after) != thrice+" "+thrice ||
		!reflect.DeepEqual(after[:3], before) {
		t.Errorf("the history was %+v and is %+v", before, after)
	}
}

// Nobody is named as the writer of a revision that another etcd has under the same number.
func TestHistoryOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	dir, other := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "other")
	listens := func(o *server.Options) { o.ListenEtcd = "127.0.0.1:0" }
	s := in(t, dir, listens)
	maps := clientsOf(t, s).CoreV1().ConfigMaps("default")
	_, err := maps.Create(t.Context(), named("limits"), metav1.CreateOptions{})
	ok(t, err)
	snapshot := takeSnapshot(t, s)
	for range 3 {
		writeHistory(t, s.RESTConfig(), "default", "lost")
	}
	halt(t, s)

	ok(t, os.RemoveAll(filepath.Join(dir, "etcd")))
	s = in(t, dir, listens, servertest.From(snapshot))
	etcd := etcdClient(t, s, etcdTLS(t, s))
	key := "/registry/configmaps/default/limits"
	found, err := etcd.Get(t.Context(), key)
	ok(t, err)
	for range 20 { // as many as others have written before
		_, err := etcd.Put(t.Context(), key, string(found.Kvs[0].Value))
		ok(t, err)
	}
	want := told(ofLimits(t, s))
	writeHistory(t, s.RESTConfig(), "default", "later")
	halt(t, s)
	s = in(t, dir)
	versions := ofLimits(t, s)
	if told(versions) != want || len(versions) != 21 || versions[0].Writer == nil {
		t.Errorf("restored, the history is %s, and was %s", told(versions), want)
	}
	for _, v := range versions[1:] {
		if v.Writer != nil || v.Time != nil {
			t.Errorf("revision %d is by %+v at %v", v.Revision, v.Writer, v.Time)
		}
	}
	halt(t, s)

	s = in(t, other)
	for range 20 {
		writeHistory(t, s.RESTConfig(), "default", "limits")
	}
	halt(t, s)
	ok(t, os.RemoveAll(filepath.Join(dir, "etcd")))
	ok(t, os.CopyFS(filepath.Join(dir, "etcd"), os.DirFS(filepath.Join(other, "etcd"))))
	s = in(t, dir)
	for _, v := range ofLimits(t, s) {
		if v.Writer != nil || v.Time != nil {
			t.Errorf("replaced, revision %d is by %+v at %v", v.Revision, v.Writer, v.Time)
		}
	}
}
