package records

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// Every name that an object may have can be stored in a file, whatever characters it consists of.
func TestAttackLongNames(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	keys := map[string]bool{}
	for _, part := range []string{"a", "A", "aA", "Aaa", "a:", "x.", "x..", "%25"} {
		for _, n := range []int{50, 83, 84, 85, 86, 240, 248, 249, 250, 251, 253} {
			name := strings.Repeat(part, n)[:n]
			keys["/things/default/"+name] = true
			keys["/things/"+name+"/"+name] = true
		}
	}
	for key := range keys {
		if err := f.Put(t.Context(), key, []byte(`{}`)); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for round, want := range []int{len(keys), 0} {
		found := 0
		if err := f.Load(t.Context(), "/things", func(key string, _ []byte) error {
			if !keys[key] {
				t.Errorf("found %s, which was not stored", key)
			}
			found++
			return nil
		}); err != nil {
			t.Error(err)
		}
		if found != want {
			t.Errorf("round %d: found %d objects, want %d", round, found, want)
		}
		for key := range keys {
			if err := f.Delete(t.Context(), key); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

// nowhere persists nothing.
type nowhere struct{}

func (nowhere) Load(context.Context, string, func(string, []byte) error) error { return nil }
func (nowhere) Put(context.Context, string, []byte) error                      { return nil }
func (nowhere) Delete(context.Context, string) error                           { return nil }

// Large objects that change often do not fill the memory with what they were.
func TestAttackLargeHistory(t *testing.T) {
	t.Parallel()
	h := newStore(t, nowhere{}).history
	first, version := h.version, uint64(0)
	for range 200 {
		now, done, err := h.write(t.Context(), "/pods/a", version, bytes.Repeat([]byte("x"), 1<<20))
		if !done {
			t.Fatal(err)
		}
		version = now.version
	}
	kept := 0
	for _, c := range h.changes {
		kept += len(c.before.data)
	}
	if kept > 100<<20 || kept != h.bytes {
		t.Errorf("the history has %d bytes, and says %d", kept, h.bytes)
	}
	if _, _, _, err := h.since(first); !errors.Is(err, errExpired) {
		t.Errorf("since the first version: %v, want %v", err, errExpired)
	}
	if changes, _, _, err := h.since(version - 10); err != nil || len(changes) != 10 {
		t.Errorf("since ten versions ago: %d changes, %v", len(changes), err)
	}
}
