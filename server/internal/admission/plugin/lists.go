package plugin

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/lru"
)

// Storage tells whether stored objects have changed.
type Storage interface {
	// State returns the number of objects below a path and the revision of the newest change to one
	// of them.
	State(ctx context.Context, path string) (count, newest int64, err error)
}

// StorageInitializer gives plugins the storage.
type StorageInitializer struct{ Storage Storage }

// Initialize implements admission.PluginInitializer.
func (i StorageInitializer) Initialize(p admission.Interface) {
	if wants, ok := p.(interface{ SetStorage(Storage) }); ok {
		wants.SetStorage(i.Storage)
	}
}

// Lists is embedded by plugins that list objects of type T with each request, while the objects
// rarely change. It lists them again only if the storage says that they have changed, so that the
// plugin still sees the latest state.
type Lists[T any] struct {
	storage Storage
	known   *lru.Cache // by path
}

// knownLists limits how many lists a plugin remembers.
const knownLists = 256

// state is the state of the objects below a path.
type state struct{ count, newest int64 }

type knownList[T any] struct {
	state state
	items []T
}

// SetStorage sets where to look for changes. Without it, List always lists.
func (l *Lists[T]) SetStorage(s Storage) { l.storage, l.known = s, lru.New(knownLists) }

// List returns the objects below a path of the storage, which list lists. The caller must not
// change the objects.
func (l *Lists[T]) List(ctx context.Context, path string, list func() ([]T, error)) ([]T, error) {
	if l.storage == nil {
		return list()
	}
	count, newest, err := l.storage.State(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	now := state{count, newest}
	if known, ok := l.known.Get(path); ok && known.(knownList[T]).state == now {
		return known.(knownList[T]).items, nil
	}
	// What changes from here on changes the state too.
	items, err := list()
	if err != nil {
		return nil, err
	}
	l.known.Add(path, knownList[T]{now, items})
	return items, nil
}
