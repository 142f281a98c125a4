package etcdstore

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAppeared(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	resource := func(name string) schema.GroupResource {
		return schema.GroupResource{Group: "example.com", Resource: name}
	}
	configMaps := schema.GroupResource{Resource: "configmaps"} // which have a store
	create := func(key string) {
		t.Helper()
		if _, err := c.backend.client.KV.Put(t.Context(), "/registry/"+key, "{}"); err != nil {
			t.Fatal(err)
		}
	}
	create("example.com/there/first")
	create("example.com/ignored/always")
	ctx, cancel := context.WithCancel(t.Context())
	appeared, returned := make(chan schema.GroupResource, 10), make(chan struct{})
	go func() {
		defer close(returned)
		c.backend.Appeared(ctx, []schema.GroupResource{
			resource("later"), resource("there"), resource("never"), resource("ignored"), configMaps,
		}, []string{"example.com/ignored/always"},
			func(r schema.GroupResource) { appeared <- r })
	}()
	expect := func(r schema.GroupResource) {
		t.Helper()
		select {
		case got := <-appeared:
			if got != r {
				t.Errorf("%s appeared, want %s", got, r)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s did not appear", r)
		}
	}
	expect(resource("there"))
	create("example.com/there/second")
	create("example.com/ignored/always")
	create("example.com/later2/another")
	create("example.com/later/first")
	expect(resource("later"))
	create("example.com/ignored/another")
	expect(resource("ignored"))
	c.put("default", "first", "")
	expect(configMaps)
	cancel()
	<-returned
	if len(appeared) > 0 {
		t.Errorf("%s appeared", <-appeared)
	}
	c.backend.Appeared(t.Context(), []schema.GroupResource{resource("later")}, nil,
		func(r schema.GroupResource) { appeared <- r })
	expect(resource("later"))
}
