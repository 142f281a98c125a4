// Package generated finds informers of client-go's factory by examples of their objects. It is a
// package of its own because whoever reads the types of that factory compiles slowly.
package generated

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// Informers are the informers of a factory.
type Informers struct {
	informers.SharedInformerFactory
}

// For returns the informer of the kind of example, or nil if client-go has none.
func (i Informers) For(example runtime.Object) cache.SharedIndexInformer {
	kinds, _, err := scheme.Scheme.ObjectKinds(example)
	if err != nil {
		return nil
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	informer, err := i.ForResource(resource)
	if err != nil {
		return nil
	}
	return informer.Informer()
}
