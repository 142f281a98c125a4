package garbagecollector_test

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

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/server/servertest"
)

var definitions = kind{
	apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
	"CustomResourceDefinition", false,
}

// Custom resources are owners and dependents like others, while definitions come and go.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	c := start(t)
	const group = "things.example.com"
	// The kind of the owner is not known yet, so nobody can say whether the owner exists.
	early := c.create(configMaps, "early-owner")
	early.SetAPIVersion(group + "/v1")
	early.SetKind("Widget")
	c.create(configMaps, "early", owned(early, true))
	c.exist(configMaps, "early")
	for range 2 {
		widgets := c.define(group)
		c.gone(configMaps, "early")
		parent := c.create(configMaps, "parent")
		owner := c.create(widgets, "owner", owned(parent, true))
		c.create(configMaps, "dependent", owned(owner, true))
		c.create(widgets, "other", owned(owner, true), held)
		c.delete(widgets, "owner", foreground)
		c.gone(configMaps, "dependent")
		c.deleting(widgets, "owner", "other")
		c.let(widgets, "other")
		c.gone(widgets, "owner", "other")

		owner = c.create(widgets, "owner", owned(parent, true))
		c.create(configMaps, "orphan", owned(owner, true))
		c.create(widgets, "orphan", owned(owner, true))
		c.delete(widgets, "owner", orphan)
		c.gone(widgets, "owner")
		c.ownedBy(configMaps, "orphan")
		c.ownedBy(widgets, "orphan")

		// The objects go with the definition, and their dependents with them.
		owner = c.create(widgets, "owner", owned(parent, true))
		c.create(configMaps, "dependent", owned(owner, true))
		c.delete(definitions, "widgets."+group, background)
		c.gone(definitions, "widgets."+group)
		c.gone(configMaps, "dependent")
		c.exist(configMaps, "parent", "orphan")
		c.delete(configMaps, "orphan", background)
		c.delete(configMaps, "parent", background)
	}
}

// Objects may be stored in a version that is not served: definitions are stored in v1beta1, and
// custom resources in whatever their definition says.
func TestStoredVersionIsNotServed(t *testing.T) {
	t.Parallel()
	c := start(t)
	owner := c.create(roles, "owner")
	widgets := c.define("old.example.com")
	definition := c.get(definitions, "widgets.old.example.com")
	versions := definition.Object["spec"].(map[string]any)["versions"].([]any)
	stored := maps.Clone(versions[0].(map[string]any))
	versions[0].(map[string]any)["storage"] = false
	stored["name"], stored["served"] = "v2", false
	definition.Object["spec"].(map[string]any)["versions"] = append(versions, stored)
	owned(owner, true)(definition)
	_, err := c.objects(definitions).Update(t.Context(), definition, metav1.UpdateOptions{})
	ok(t, err)
	first := c.create(configMaps, "first")
	// The first objects may still be stored in the old version.
	for i := range 20 {
		c.create(widgets, fmt.Sprint("dependent-", i), owned(first, true))
	}
	second := c.create(widgets, "second")
	c.create(configMaps, "dependent", owned(second, true))
	c.exist(configMaps, "dependent")
	c.delete(configMaps, "first", foreground)
	for i := range 20 {
		c.gone(widgets, fmt.Sprint("dependent-", i))
	}
	c.delete(widgets, "second", background)
	c.gone(configMaps, "dependent")
	c.delete(roles, "owner", background)
	c.gone(definitions, definition.GetName())
}

var apiServices = kind{
	apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"), "APIService", false,
}

// extension makes another control plane the extension API server of a group. It returns the group's
// kind, and what to set to make it unavailable.
func (c *cluster) extension(group string) (kind, *atomic.Bool) {
	c.Helper()
	behind := start(c, servertest.WithoutControllers)
	widgets := behind.define(group)
	config := behind.server.RESTConfig()
	transport, err := rest.TransportFor(config)
	ok(c, err)
	target, err := url.Parse(config.Host)
	ok(c, err)
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
	ok(c, err)
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
func TestAggregated(t *testing.T) {
	t.Parallel()
	c := start(t)
	const group = "remote.example.com"
	widgets, down := c.extension(group)
	parent := c.create(configMaps, "parent")
	owner := c.create(widgets, "owner", owned(parent, true))
	c.create(configMaps, "dependent", owned(owner, true))
	c.create(widgets, "leaf", owned(owner, true))
	c.delete(configMaps, "parent", background)
	c.gone(widgets, "owner", "leaf")
	c.gone(configMaps, "dependent")

	owner = c.create(configMaps, "owner")
	c.create(widgets, "blocking", owned(owner, true), held)
	c.seen(widgets)
	c.delete(configMaps, "owner", foreground)
	c.deleting(widgets, "blocking")
	c.exist(configMaps)
	if c.get(configMaps, "owner") == nil {
		t.Error("the owner did not wait")
	}
	c.let(widgets, "blocking")
	c.gone(configMaps, "owner")

	// The owner, of which the collector has seen events, exists as long as nobody says otherwise.
	owner = c.create(widgets, "owner")
	c.create(configMaps, "dependent", owned(owner, true))
	absent := owner.DeepCopy()
	absent.SetUID("another")
	absent.SetName("absent")
	blocked := c.create(configMaps, "blocked")
	c.create(widgets, "blocking", owned(blocked, true), held)
	c.seen(widgets)
	c.delete(configMaps, "blocked", foreground)
	c.deleting(widgets, "blocking")
	down.Store(true)
	c.create(configMaps, "unclear", owned(absent, true))
	c.exist(configMaps, "dependent", "unclear")
	if c.get(configMaps, "blocked") == nil {
		t.Error("an object that cannot be read does not block its owner any more")
	}
	down.Store(false)
	c.gone(configMaps, "unclear")
	c.exist(configMaps, "dependent")

	// Nobody can see what the server had once it is not registered.
	ok(t, c.objects(apiServices).Delete(t.Context(), "v1."+group, metav1.DeleteOptions{}))
	c.gone(configMaps, "blocked")
	c.exist(configMaps, "dependent")
}
