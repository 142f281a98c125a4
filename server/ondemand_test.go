package server_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestFirstRequestsOfGroups sends the first requests for several groups, and for the documents
// about all of them, at the same time.
func TestFirstRequestsOfGroups(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).RESTClient()
	paths := []string{
		"/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/apps/v1/deployments",
		"/apis/batch/v1/", "/apis/batch/v1/namespaces/default/jobs",
		"/apis/policy/v1/poddisruptionbudgets", "/api/v1/pods", "/openapi/v2", "/openapi/v3",
		"/openapi/v3/apis/autoscaling/v2",
	}
	var all sync.WaitGroup
	for range 4 {
		for _, path := range paths {
			all.Go(func() {
				if _, err := client.Get().AbsPath(path).DoRaw(t.Context()); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			})
		}
	}
	all.Wait()
}

// TestDiscoveryIsCompleteAtOnce checks that the first request for the discovery document of all
// groups lists the resources of groups that nobody has used.
func TestDiscoveryIsCompleteAtOnce(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	client := discovery.NewDiscoveryClientForConfigOrDie(s.RESTConfig())
	groups, resources, failed, err := client.GroupsAndMaybeResources()
	if err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	if resources == nil {
		t.Fatal("the document of all groups has no resources")
	}
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			found := false
			for gv, list := range resources {
				found = found || gv.String() == version.GroupVersion && len(list.APIResources) > 0
			}
			if !found {
				t.Errorf("%s has no resources", version.GroupVersion)
			}
		}
	}
	var root struct{ Paths []string }
	data, err := client.RESTClient().Get().AbsPath("/").DoRaw(t.Context())
	if err == nil {
		err = json.Unmarshal(data, &root)
	}
	if err != nil || !slices.Contains(root.Paths, "/apis/batch/v1") {
		t.Errorf("/ lists %v, %v", root.Paths, err)
	}
}
