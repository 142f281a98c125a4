package etcdstore

import (
	"testing"
	"time"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	c := newConfigMaps(t)
	kv := c.backend.client.KV
	changed, stop := c.backend.Changes(t.Context(), "example.com/a", "example.com/b")
	defer stop()
	expect := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatalf("%s: no change", what)
		}
	}
	expect("the watch has begun")
	for _, step := range []struct {
		key   string
		write func(key string) error
	}{
		{"example.com/a", func(key string) error { _, err := kv.Put(t.Context(), key, "1"); return err }},
		{"example.com/b", func(key string) error { _, err := kv.Put(t.Context(), key, "1"); return err }},
		{"example.com/a", func(key string) error { _, err := kv.Delete(t.Context(), key); return err }},
	} {
		if _, err := kv.Put(t.Context(), "/registry/example.com/another", "1"); err != nil {
			t.Fatal(err)
		}
		if len(changed) > 0 {
			t.Error("another object changed")
		}
		if err := step.write("/registry/" + step.key); err != nil {
			t.Fatal(err)
		}
		expect(step.key)
	}
}
