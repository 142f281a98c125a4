package resourcequotas

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/tools/cache"
)

// live returns a function that returns listers which ask the API server, and follows the resources,
// as lister does.
func (r *resources) live(ctx context.Context) quota.ListerForResourceFunc {
	return func(gvr schema.GroupVersionResource) (cache.GenericLister, error) {
		if _, err := r.lister(ctx, gvr); err != nil {
			return nil, err
		}
		return liveLister{r, ctx, gvr, metav1.NamespaceAll}, nil
	}
}

// liveLister lists the objects of a resource in a namespace.
type liveLister struct {
	*resources
	ctx       context.Context
	resource  schema.GroupVersionResource
	namespace string
}

// ByNamespace implements cache.GenericLister.
func (l liveLister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	l.namespace = namespace
	return l
}

// List implements cache.GenericLister.
func (l liveLister) List(selector labels.Selector) ([]runtime.Object, error) {
	options := metav1.ListOptions{LabelSelector: selector.String()}
	list, err := l.list(options)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", l.resource, err)
	}
	return meta.ExtractList(list)
}

// list returns whole objects where they count by more than their number.
func (l liveLister) list(options metav1.ListOptions) (runtime.Object, error) {
	client := l.controller.Client
	switch l.resource {
	case corev1.SchemeGroupVersion.WithResource("pods"):
		return client.CoreV1().Pods(l.namespace).List(l.ctx, options)
	case corev1.SchemeGroupVersion.WithResource("services"):
		return client.CoreV1().Services(l.namespace).List(l.ctx, options)
	case corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"):
		return client.CoreV1().PersistentVolumeClaims(l.namespace).List(l.ctx, options)
	case resourcev1.SchemeGroupVersion.WithResource("resourceclaims"):
		return client.ResourceV1().ResourceClaims(l.namespace).List(l.ctx, options)
	}
	return l.controller.Metadata.Resource(l.resource).Namespace(l.namespace).List(l.ctx, options)
}

// Get implements cache.GenericLister. Nobody calls it.
func (l liveLister) Get(name string) (runtime.Object, error) {
	return nil, apierrors.NewNotFound(l.resource.GroupResource(), name)
}
