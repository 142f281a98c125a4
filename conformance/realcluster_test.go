package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// realCluster holds the etcd data of a cluster with kube-apiserver 1.36.3, and what kube-apiserver
// 1.37.2 answers from that data.
const realCluster = "testdata/realcluster/"

// entry is the value of an etcd key and the revision of its last change.
type entry struct {
	value    []byte
	revision int64
}

// dump returns the entries below /registry and the revision of etcd.
func dump(t *testing.T, ctx context.Context, client *clientv3.Client) (map[string]entry, int64) {
	t.Helper()
	answer, err := client.Get(ctx, "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]entry{}
	for _, kv := range answer.Kvs {
		entries[string(kv.Key)] = entry{kv.Value, kv.ModRevision}
	}
	return entries, answer.Header.Revision
}

// readDir dumps the etcd data in dir, which no server may be using.
func readDir(t *testing.T, dir string) (map[string]entry, int64) {
	t.Helper()
	e, err := embed.Start(t.Context(), embed.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	entries, revision := dump(t, t.Context(), e.Client())
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return entries, revision
}

// restored returns a data directory with the real cluster's data.
func restored(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := embed.Restore(filepath.Join(dir, "etcd"),
		bytes.NewReader(unzip(t, realCluster+"snapshot.db.gz"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// opened starts a control plane on dir that writes nothing but what every start ensures.
func opened(t *testing.T, dir string) *server.Server {
	t.Helper()
	return servertest.Run(t, servertest.WithoutControllers, withoutServiceAccounts,
		func(o *server.Options) {
			o.DataDir = dir
			o.ServiceClusterIPRange = "10.96.0.0/16"
		})
}

// notStored holds the lists whose items have a status that depends on the running process.
var notStored = map[string]bool{
	"/api/v1/componentstatuses":                   true,
	"/apis/apiregistration.k8s.io/v1/apiservices": true,
}

// A start writes a few objects, so the lists are read at the snapshot's revision, which etcd still
// has.
func TestOpensWhatARealClusterWrote(t *testing.T) {
	t.Parallel()
	var lists map[string]unstructured.UnstructuredList
	if err := json.Unmarshal(unzip(t, realCluster+"lists.json.gz"), &lists); err != nil {
		t.Fatal(err)
	}
	dir := restored(t)
	_, revision := readDir(t, filepath.Join(dir, "etcd"))
	client, err := kubernetes.NewForConfig(opened(t, dir).RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	items := 0
	for path, want := range lists {
		if path == "/api/v1/componentstatuses" {
			continue // component statuses are computed for each request
		}
		data, err := client.RESTClient().Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).
			Param("resourceVersion", fmt.Sprint(revision)).Param("resourceVersionMatch", "Exact").
			DoRaw(t.Context())
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var got unstructured.UnstructuredList
		if err := json.Unmarshal(data, &got); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got.GetKind() != want.GetKind() || got.GetAPIVersion() != want.GetAPIVersion() ||
			len(got.Items) != len(want.Items) {
			t.Errorf("%s: got %d items in a %s, want %d in a %s", path, len(got.Items), got.GetKind(),
				len(want.Items), want.GetKind())
			continue
		}
		for i := range want.Items {
			if notStored[path] {
				unstructured.RemoveNestedField(got.Items[i].Object, "status")
				unstructured.RemoveNestedField(want.Items[i].Object, "status")
			}
			if !reflect.DeepEqual(got.Items[i].Object, want.Items[i].Object) {
				t.Errorf("%s: %s/%s differs:\n%s", path, want.Items[i].GetNamespace(), want.Items[i].GetName(),
					diff.Diff(want.Items[i].Object, got.Items[i].Object))
			}
			items++
		}
	}
	if want := 323; items != want {
		t.Errorf("compared %d items, want %d", items, want)
	}
}

// startWrites holds the prefixes of the keys that a start may write: the server's lease, addresses
// and CA, the APIServices, and the roles that are new in 1.37 or cover kinds that are new in 1.37.
var startWrites = []string{
	"/registry/apiregistration.k8s.io/apiservices/",
	"/registry/clusterrolebindings/system:cluster-trust-bundle-discovery",
	"/registry/clusterrolebindings/" +
		"system:controller:kube-apiserver-serving-clustertrustbundle-publisher",
	"/registry/clusterrolebindings/system:controller:podcertificaterequestcleaner",
	"/registry/clusterrolebindings/system:controller:storage-version-migrator-controller",
	"/registry/clusterroles/system:cluster-trust-bundle-discovery",
	"/registry/clusterroles/system:controller:device-taint-eviction-controller",
	"/registry/clusterroles/system:controller:kube-apiserver-serving-clustertrustbundle-publisher",
	"/registry/clusterroles/system:controller:node-controller",
	"/registry/clusterroles/system:controller:podcertificaterequestcleaner",
	"/registry/clusterroles/system:controller:storage-version-migrator-controller",
	"/registry/clusterroles/system:kube-scheduler",
	"/registry/clusterroles/system:node",
	"/registry/configmaps/kube-system/extension-apiserver-authentication",
	"/registry/endpointslices/default/kubernetes",
	"/registry/leases/kube-system/apiserver-",
	"/registry/services/endpoints/default/kubernetes",
	"/registry/services/specs/default/kubernetes",
}

func TestAStartLeavesARealClustersDataAlone(t *testing.T) {
	t.Parallel()
	dir := restored(t)
	before, revision := readDir(t, filepath.Join(dir, "etcd"))
	t.Run("start", func(t *testing.T) { opened(t, dir) })
	after, _ := readDir(t, filepath.Join(dir, "etcd"))
	for key := range before {
		if _, ok := after[key]; !ok &&
			!strings.HasPrefix(key, "/registry/apiregistration.k8s.io/apiservices/") {
			t.Errorf("%s is gone", key)
		}
	}
	for key, e := range after {
		own := slices.ContainsFunc(startWrites, func(prefix string) bool {
			return strings.HasPrefix(key, prefix)
		})
		if e.revision > revision && !own {
			t.Errorf("the start wrote %s", key)
		}
	}
}
