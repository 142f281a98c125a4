package informers

import (
	"context"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kinproc/kinproc/chain"
)

func (s *Set) all() []*Factory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.factories)
}

// WaitSynced waits until the informers that have been started have listed their objects.
func (s *Set) WaitSynced(ctx context.Context) error {
	for _, f := range s.all() {
		f.WaitForCacheSync(ctx.Done())
	}
	return context.Cause(ctx)
}

// CatchUp waits until the stores of the informers have exactly the objects that a reset has
// changed.
func (s *Set) CatchUp(ctx context.Context, changes chain.Changes) error {
	ended := make(chan struct{})
	close(ended)
	for _, f := range s.all() {
		for t := range f.WaitForCacheSync(ended) {
			object, ok := reflect.New(t.Elem()).Interface().(runtime.Object)
			if !ok {
				continue
			}
			kinds, _, err := clientscheme.Scheme.ObjectKinds(object)
			if err != nil || len(kinds) == 0 {
				continue
			}
			// The informer exists, because it has been started.
			store := f.InformerFor(object, nil).GetStore()
			if err := changes.WaitStore(ctx, kinds[0].GroupKind(), store); err != nil {
				return err
			}
		}
	}
	return nil
}
