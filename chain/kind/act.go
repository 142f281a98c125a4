package kind

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Act is the storage of a [Virtual] resource. A client posts a question and gets it back with the
// answer. Nothing is stored.
type Act[T Object] struct {
	// Singular is the resource's singular name, such as "tokenreview".
	Singular string
	// Namespaced acts belong to a namespace.
	Namespaced bool
	// Check refuses bad questions, before admission. Nil accepts all.
	Check func(ctx context.Context, obj T) error
	// Do answers the question. It may fill in and return obj.
	Do func(ctx context.Context, obj T) (T, error)
}

var _ interface {
	rest.Creater
	rest.Scoper
	rest.SingularNameProvider
} = &Act[Object]{}

// New implements rest.Storage.
func (a *Act[T]) New() runtime.Object { return newObject[T]() }

// Destroy implements rest.Storage.
func (a *Act[T]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (a *Act[T]) NamespaceScoped() bool { return a.Namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (a *Act[T]) GetSingularName() string { return a.Singular }

// Create implements rest.Creater.
func (a *Act[T]) Create(
	ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, _ *metav1.CreateOptions,
) (runtime.Object, error) {
	t := obj.(T)
	if a.Check != nil {
		if err := a.Check(ctx, t); err != nil {
			return nil, err
		}
	}
	if admit != nil {
		if err := admit(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	answer, err := a.Do(ctx, t)
	if err != nil {
		return nil, err
	}
	return answer, nil
}
