package bootstrap

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/kinproc/kinproc/chain/kind"
)

// Part is something that every control plane has. Keys are those of etcd, below the prefix of all
// objects. Any field may be zero.
type Part struct {
	// Hook is its name in /readyz. If kube-apiserver has such a hook, it has the same name.
	Hook string
	// First returns the objects of a first start, prepared by the kind engine. They are written to
	// etcd before anything is served, if none of them exists.
	First func() ([]kind.Object, error)
	// Ensure makes what is missing when the server serves, unless First or Adopt has been enough.
	Ensure func(context.Context) error
	// Every is the interval at which Ensure is called again. It does not fail then. 0 is never.
	Every time.Duration
	// Keep begins to keep the objects. All are as they have to be if complete is true.
	Keep func(ctx context.Context, complete bool) error

	// Own reports whether an object describes this control plane, so that a reset leaves it alone.
	Own func(key string) bool
	// Always reports whether a reset leaves an object if the snapshot does not have it. The
	// function has reports what the snapshot has.
	Always func(key string, has func(key string) bool) bool
	// Adopt returns how objects of another control plane become those of this one, by their keys. A
	// fork must have them all, but for keys in which * stands for each namespace.
	Adopt func() (map[string]Edit, error)
}

// Own reports whether an object describes this control plane, so that a reset leaves it alone.
func (b *Bootstrap) Own(key string) bool {
	for _, p := range b.parts {
		if p.Own != nil && p.Own(key) {
			return true
		}
	}
	return false
}

// Always reports whether a reset leaves an object that the snapshot does not have.
func (b *Bootstrap) Always(key string, has func(key string) bool) bool {
	for _, p := range b.parts {
		if p.Always != nil && p.Always(key, has) {
			return true
		}
	}
	return false
}

// Adopt returns how objects of a snapshot become those of this control plane.
func (b *Bootstrap) Adopt() (Edits, error) {
	all := Edits{}
	for _, p := range b.parts {
		if p.Adopt == nil {
			continue
		}
		edits, err := p.Adopt()
		if err != nil {
			return nil, err
		}
		for key, edit := range edits {
			all[key] = edit
		}
	}
	return all, nil
}

// Edits are changes by the keys of objects, in which * stands for each namespace.
type Edits map[string]Edit

// Apply returns what is stored instead of an object.
func (e Edits) Apply(key string, value []byte) []byte {
	if edit := e[key]; edit != nil {
		return edit(value)
	}
	for pattern, edit := range e {
		before, after, ok := strings.Cut(pattern, everyNamespace)
		if !ok || !strings.HasPrefix(key, before) || !strings.HasSuffix(key, after) {
			continue
		}
		if matches, _ := path.Match(pattern, key); matches {
			return edit(value)
		}
	}
	return value
}

// everyNamespace stands for a namespace in the keys of [Edits].
const everyNamespace = "*"
