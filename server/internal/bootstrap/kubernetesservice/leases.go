package kubernetesservice

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

const (
	leasesPath = "/masterleases"
	// leaseTTL is the same as in kube-apiserver: a server that died remains an endpoint for at most
	// fifteen seconds.
	leaseTTL = 15 * time.Second
)

// StoredLeases are Endpoints objects under /registry/masterleases that etcd deletes when they are
// not renewed.
type StoredLeases struct {
	store storage.Interface
	close func()
}

// NewLeases opens the storage of the leases.
func NewLeases(getter generic.RESTOptionsGetter) (*StoredLeases, error) {
	options, err := getter.GetRESTOptions(schema.GroupResource{Resource: "apiServerIPInfo"},
		&corev1.Endpoints{})
	if err != nil {
		return nil, fmt.Errorf("storage of leases: %w", err)
	}
	store, destroy, err := options.Decorator(options.StorageConfig, leasesPath,
		func(runtime.Object) (string, error) { return leasesPath, nil },
		func() runtime.Object {
			return &corev1.Endpoints{}
		}, func() runtime.Object { return &corev1.EndpointsList{} },
		func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("storage of leases: %w", err)
	}
	return &StoredLeases{store: store, close: destroy}, nil
}

// Close releases the storage.
func (l *StoredLeases) Close() { l.close() }

// Renew implements [Leases]. It increments the generation, so that each renewal is a write.
func (l *StoredLeases) Renew(ctx context.Context, address string) error {
	ttl := uint64(leaseTTL / time.Second)
	update := func(in runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		e := in.(*corev1.Endpoints)
		e.Subsets = []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: address}}}}
		e.Generation++
		return e, &ttl, nil
	}
	if err := l.store.GuaranteedUpdate(ctx, leasesPath+"/"+address, &corev1.Endpoints{}, true,
		nil, update, nil); err != nil {
		return fmt.Errorf("renew the lease of %s: %w", address, err)
	}
	return nil
}

// Remove implements [Leases].
func (l *StoredLeases) Remove(ctx context.Context, address string) error {
	err := l.store.Delete(ctx, leasesPath+"/"+address, &corev1.Endpoints{}, nil,
		rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if err != nil && !storage.IsNotFound(err) {
		return fmt.Errorf("remove the lease of %s: %w", address, err)
	}
	return nil
}

// Holders implements [Leases].
func (l *StoredLeases) Holders(ctx context.Context) ([]string, error) {
	var list corev1.EndpointsList
	options := storage.ListOptions{Predicate: storage.Everything, Recursive: true}
	if err := l.store.GetList(ctx, leasesPath, options, &list); err != nil {
		return nil, fmt.Errorf("list the leases of API servers: %w", err)
	}
	var holders []string
	for _, e := range list.Items {
		for _, s := range e.Subsets {
			for _, a := range s.Addresses {
				holders = append(holders, a.IP)
			}
		}
	}
	return holders, nil
}
