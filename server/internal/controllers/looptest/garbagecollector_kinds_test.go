package looptest

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

// Custom resources are owners and dependents like others, while definitions come and go.
func TestGarbageCollectorCustomResources(t *testing.T) {
	t.Parallel()
	c := startGarbageCollector(t)
	const group = "things.example.com"
	// The kind of the owner is not known yet, so nobody can say whether the owner exists.
	early := c.create(c.configMaps, "early-owner")
	early.SetAPIVersion(group + "/v1")
	early.SetKind("Widget")
	c.create(c.configMaps, "early", c.owned(early, true))
	c.exist(c.configMaps, "early")
	for range 2 {
		widgets := c.define(group)
		c.gone(c.configMaps, "early")
		parent := c.create(c.configMaps, "parent")
		owner := c.create(widgets, "owner", c.owned(parent, true))
		c.create(c.configMaps, "dependent", c.owned(owner, true))
		c.create(widgets, "other", c.owned(owner, true), c.held)
		c.delete(widgets, "owner", foreground)
		c.gone(c.configMaps, "dependent")
		c.deleting(widgets, "owner", "other")
		c.let(widgets, "other")
		c.gone(widgets, "owner", "other")

		owner = c.create(widgets, "owner", c.owned(parent, true))
		c.create(c.configMaps, "orphan", c.owned(owner, true))
		c.create(widgets, "orphan", c.owned(owner, true))
		c.delete(widgets, "owner", orphan)
		c.gone(widgets, "owner")
		c.ownedBy(c.configMaps, "orphan")
		c.ownedBy(widgets, "orphan")

		// The objects go with the definition, and their dependents with them.
		owner = c.create(widgets, "owner", c.owned(parent, true))
		c.create(c.configMaps, "dependent", c.owned(owner, true))
		c.delete(c.definitions, "widgets."+group, background)
		c.gone(c.definitions, "widgets."+group)
		c.gone(c.configMaps, "dependent")
		c.exist(c.configMaps, "parent", "orphan")
		c.delete(c.configMaps, "orphan", background)
		c.delete(c.configMaps, "parent", background)
	}
}

// Objects may be stored in a version that is not served: definitions are stored in v1beta1, and
// custom resources in whatever their definition says.
func TestGarbageCollectorStoredVersionIsNotServed(t *testing.T) {
	t.Parallel()
	c := startGarbageCollector(t)
	owner := c.create(c.roles, "owner")
	widgets := c.define("old.example.com")
	definition := c.get(c.definitions, "widgets.old.example.com")
	versions := definition.Object["spec"].(map[string]any)["versions"].([]any)
	stored := maps.Clone(versions[0].(map[string]any))
	versions[0].(map[string]any)["storage"] = false
	stored["name"], stored["served"] = "v2", false
	definition.Object["spec"].(map[string]any)["versions"] = append(versions, stored)
	c.owned(owner, true)(definition)
	_, err := c.objects(c.definitions).Update(t.Context(), definition, metav1.UpdateOptions{})
	workloadtest.OK(t, err)
	first := c.create(c.configMaps, "first")
	// The first objects may still be stored in the old version.
	for i := range 20 {
		c.create(widgets, fmt.Sprint("dependent-", i), c.owned(first, true))
	}
	second := c.create(widgets, "second")
	c.create(c.configMaps, "dependent", c.owned(second, true))
	c.exist(c.configMaps, "dependent")
	c.delete(c.configMaps, "first", foreground)
	for i := range 20 {
		c.gone(widgets, fmt.Sprint("dependent-", i))
	}
	c.delete(widgets, "second", background)
	c.gone(c.configMaps, "dependent")
	c.delete(c.roles, "owner", background)
	c.gone(c.definitions, definition.GetName())
}

// extension makes another control plane the extension API server of a group. It returns the group's
// kind, and what to set to make it unavailable.
func (c *garbage) extension(group string) (garbageKind, *atomic.Bool) {
	c.Helper()
	behind := startGarbageCollector(c, servertest.WithoutControllers)
	widgets := behind.define(group)
	config := behind.server.RESTConfig()
	transport, err := rest.TransportFor(config)
	workloadtest.OK(c, err)
	target, err := url.Parse(config.Host)
	workloadtest.OK(c, err)
	var down atomic.Bool
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			for _, name := range []string{
				"Authorization", "X-Remote-User", "X-Remote-Group", "X-Remote-Uid",
			} {
				r.Out.Header.Del(name)
			}
		},
		Transport:     transport,
		FlushInterval: -1,
	}
	e := servertest.NewEndpoint(c)
	listener, err := tls.Listen("tcp", e.Addr(), e.TLS)
	workloadtest.OK(c, err)
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				http.Error(w, "down", http.StatusServiceUnavailable)
				return
			}
			proxy.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: time.Minute,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(listener) // ends with Close
	}()
	c.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	servertest.APIService(c, c.server, e, schema.GroupVersion{Group: group, Version: "v1"})
	return widgets, &down
}

// Objects of extension API servers are owners and dependents like others. One that is unavailable
// blocks only what refers to its kinds.
func TestGarbageCollectorAggregated(t *testing.T) {
	t.Parallel()
	c := startGarbageCollector(t)
	const group = "remote.example.com"
	widgets, down := c.extension(group)
	parent := c.create(c.configMaps, "parent")
	owner := c.create(widgets, "owner", c.owned(parent, true))
	c.create(c.configMaps, "dependent", c.owned(owner, true))
	c.create(widgets, "leaf", c.owned(owner, true))
	c.delete(c.configMaps, "parent", background)
	c.gone(widgets, "owner", "leaf")
	c.gone(c.configMaps, "dependent")

	owner = c.create(c.configMaps, "owner")
	c.create(widgets, "blocking", c.owned(owner, true), c.held)
	c.seen(widgets)
	c.delete(c.configMaps, "owner", foreground)
	c.deleting(widgets, "blocking")
	c.exist(c.configMaps)
	if c.get(c.configMaps, "owner") == nil {
		t.Error("the owner did not wait")
	}
	c.let(widgets, "blocking")
	c.gone(c.configMaps, "owner")

	// The owner, of which the collector has seen events, exists as long as nobody says otherwise.
	owner = c.create(widgets, "owner")
	c.create(c.configMaps, "dependent", c.owned(owner, true))
	absent := owner.DeepCopy()
	absent.SetUID("another")
	absent.SetName("absent")
	blocked := c.create(c.configMaps, "blocked")
	c.create(widgets, "blocking", c.owned(blocked, true), c.held)
	c.seen(widgets)
	c.delete(c.configMaps, "blocked", foreground)
	c.deleting(widgets, "blocking")
	down.Store(true)
	c.create(c.configMaps, "unclear", c.owned(absent, true))
	c.exist(c.configMaps, "dependent", "unclear")
	if c.get(c.configMaps, "blocked") == nil {
		t.Error("an object that cannot be read does not block its owner any more")
	}
	down.Store(false)
	c.gone(c.configMaps, "unclear")
	c.exist(c.configMaps, "dependent")

	// Nobody can see what the server had once it is not registered.
	workloadtest.OK(t, c.objects(c.apiServices).Delete(t.Context(), "v1."+group,
		metav1.DeleteOptions{}))
	c.gone(c.configMaps, "blocked")
	c.exist(c.configMaps, "dependent")
}
