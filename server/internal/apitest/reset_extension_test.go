package apitest

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// serveStones serves an extension API server whose versions have one resource, stones. It returns a
// function that ends the server, and one that starts it again.
func serveStones(t *testing.T, e *servertest.Endpoint, slow <-chan struct{}) (stop, start func()) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		if len(parts) < 3 || parts[0] != "apis" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		version := parts[1] + "/" + parts[2]
		switch {
		case len(parts) == 3:
			fmt.Fprintf(w,
				`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [
				{"name": "stones", "kind": "Stone", "namespaced": false, "verbs": ["get", "list"]}]}`, version)
		case parts[len(parts)-1] == "slow":
			<-slow
			fallthrough
		default:
			fmt.Fprintf(w, `{"kind": "StoneList", "apiVersion": %q, "metadata": {}, "items": []}`, version)
		}
	})
	var end func()
	start = func() {
		l, err := tls.Listen("tcp", e.Addr(), e.TLS)
		ok(t, err)
		s := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(l) }()
		end = func() {
			_ = s.Close()
			<-ended
			end = func() {}
		}
	}
	start()
	t.Cleanup(func() { end() })
	return func() { end() }, start
}

// stoneClients are the clients of a control plane with an extension API server.
type stoneClients struct {
	clients
	services *aggregatorclient.Clientset
}

func stoneClientsOf(t *testing.T, s *server.Server) stoneClients {
	config, err := s.InProcessConfig("tester", "system:masters")
	ok(t, err)
	return stoneClients{clientsOf(t, s), aggregatorclient.NewForConfigOrDie(config)}
}

// check checks at once, without a wait, whether a version is served by the extension API server.
func (c stoneClients) check(t *testing.T, when string, gv schema.GroupVersion, served bool) {
	t.Helper()
	err := c.RESTClient().Get().AbsPath("/apis", gv.Group, gv.Version, "stones").
		Do(t.Context()).Error()
	if served != (err == nil) || !served && !apierrors.IsNotFound(err) {
		t.Errorf("%s, %s is to be served: %t, but its list has the error %v", when, gv, served, err)
	}
	// The aggregated document, and the documents of old clients.
	for name, client := range map[string]discovery.DiscoveryInterface{
		"aggregated": c.Discovery(), "legacy": c.Discovery().WithLegacy(),
	} {
		_, lists, err := client.ServerGroupsAndResources()
		if err != nil {
			t.Errorf("%s, %s discovery: %v", when, name, err)
		}
		listed := false
		for _, l := range lists {
			if l.GroupVersion == gv.String() && len(l.APIResources) == 1 {
				listed = l.APIResources[0].Name == "stones"
			}
		}
		if listed != served {
			t.Errorf("%s, %s discovery has %s: %t", when, name, gv, listed)
		}
	}
	c.checkAvailable(t, when, gv, served)
}

func (c stoneClients) checkAvailable(t *testing.T, when string, gv schema.GroupVersion, want bool) {
	t.Helper()
	available, err := c.available(t, gv)
	if available != want || err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("%s, %s is available: %t, want %t, %v", when, gv, available, want, err)
	}
}

func (c stoneClients) available(t *testing.T, gv schema.GroupVersion) (bool, error) {
	s, err := c.services.ApiregistrationV1().APIServices().Get(t.Context(), gv.Version+"."+gv.Group,
		metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	for _, condition := range s.Status.Conditions {
		if condition.Type == apiregistrationv1.Available {
			return condition.Status == apiregistrationv1.ConditionTrue, nil
		}
	}
	return false, nil
}

// The versions of extension API servers are proxied and discovered as the snapshot says when a
// reset returns.
func TestResetOfAPIServices(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := stoneClientsOf(t, s)
	e := servertest.NewEndpoint(t)
	slow := make(chan struct{})
	serveStones(t, e, slow)
	version := func(group string) schema.GroupVersion {
		return schema.GroupVersion{Group: group + ".stones.example.com", Version: "v1"}
	}
	kept, deleted, added := version("kept"), version("deleted"), version("added")
	servertest.APIService(t, s, e, kept)
	servertest.APIService(t, s, e, deleted)
	snapshot := takeSnapshot(t, s)
	apiServices := c.services.ApiregistrationV1().APIServices()

	for round := range 5 {
		servertest.APIService(t, s, e, added)
		c.check(t, "before the reset", kept, true)
		c.check(t, "before the reset", added, true)
		ok(t, apiServices.Delete(t.Context(), "v1."+deleted.Group, metav1.DeleteOptions{}))
		await(t, "the deleted version is gone", func() bool {
			err := c.RESTClient().Get().AbsPath("/apis", deleted.Group, "v1").Do(t.Context()).Error()
			return apierrors.IsNotFound(err)
		})
		// A request that the extension API server answers goes on during the reset.
		lasting := make(chan error, 1)
		if round == 0 {
			go func() {
				lasting <- c.RESTClient().Get().AbsPath("/apis", kept.Group, "v1", "slow").Do(t.Context()).
					Error()
			}()
		}
		resetTo(t, s, snapshot)
		when := fmt.Sprintf("after reset %d", round)
		c.check(t, when, kept, true)
		c.check(t, when, deleted, true)
		c.check(t, when, added, false)
		if round == 0 {
			close(slow)
			if err := <-lasting; err != nil {
				t.Errorf("a request across the reset: %v", err)
			}
		}
	}
}

// Whether a version is available depends on the extension API server, not on the snapshot.
func TestResetToAnotherAvailability(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := stoneClientsOf(t, s)
	e := servertest.NewEndpoint(t)
	stop, start := serveStones(t, e, nil)
	gv := schema.GroupVersion{Group: "stones.example.com", Version: "v1"}
	servertest.APIService(t, s, e, gv)
	becomes := func(want bool) {
		// The server is looked at again when its APIService changes, and otherwise after some
		// seconds.
		_, err := c.services.ApiregistrationV1().APIServices().Patch(t.Context(), "v1."+gv.Group,
			types.MergePatchType, []byte(fmt.Sprintf(`{"metadata": {"annotations": {"up": "%t"}}}`, want)),
			metav1.PatchOptions{})
		ok(t, err)
		await(t, fmt.Sprintf("it is available: %t", want), func() bool {
			available, err := c.available(t, gv)
			return err == nil && available == want
		})
	}
	up := takeSnapshot(t, s)
	stop()
	becomes(false)
	down := takeSnapshot(t, s)
	resetTo(t, s, up)
	c.checkAvailable(t, "with a server that is down", gv, false)
	start()
	becomes(true)
	resetTo(t, s, down)
	c.check(t, "with a server that is up", gv, true)

	// The same when the APIService was deleted meanwhile.
	for _, snapshot := range []*server.Snapshot{up, down} {
		ok(t, c.services.ApiregistrationV1().APIServices().Delete(t.Context(), "v1."+gv.Group,
			metav1.DeleteOptions{}))
		resetTo(t, s, snapshot)
		c.check(t, "with a server that is up, restored", gv, true)
	}
	stop()
	resetTo(t, s, down)
	resetTo(t, s, up)
	began := time.Now() // a reset waits ten seconds for a server that does not answer
	ok(t, c.services.ApiregistrationV1().APIServices().Delete(t.Context(), "v1."+gv.Group,
		metav1.DeleteOptions{}))
	resetTo(t, s, up)
	c.checkAvailable(t, "with a server that is down, restored", gv, false)
	if took := time.Since(began); took >= 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
