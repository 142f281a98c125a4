package admission

import (
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
)

// maker makes a plugin from its part of the admission configuration, which is nil if there is none.
type maker func(config io.Reader) (admission.Interface, error)

// plain is the maker of a plugin that has no configuration.
func plain(new func() admission.Interface) maker {
	return func(io.Reader) (admission.Interface, error) { return new(), nil }
}

// reader is embedded by plugins that read objects. They ask the server itself, which in this process is a function call, and so see the
// latest state. kube-apiserver's plugins keep informers instead, which take memory and lag behind.
type reader struct{ client kubernetes.Interface }

func (r *reader) SetExternalKubeClientSet(client kubernetes.Interface) { r.client = client }

func (r *reader) ValidateInitialization() error {
	if r.client == nil {
		return errors.New("no client was set")
	}
	return nil
}

// asker is embedded by plugins that ask what the user may do.
type asker struct {
	authorizer authorizer.UnconditionalAuthorizer
}

func (a *asker) SetUnconditionalAuthorizer(authorizer authorizer.UnconditionalAuthorizer) {
	a.authorizer = authorizer
}

func (a *asker) ValidateInitialization() error {
	if a.authorizer == nil {
		return errors.New("no authorizer was set")
	}
	return nil
}

// on handles the operations it is made of.
func on(operations ...admission.Operation) *admission.Handler {
	return admission.NewHandler(operations...)
}

// is reports whether a request is about a resource, or with subresource about that of it. The version does not matter.
func is(a admission.Attributes, resource schema.GroupResource, subresource string) bool {
	return a.GetResource().GroupResource() == resource && a.GetSubresource() == subresource
}

var (
	pods                   = corev1.Resource("pods")
	persistentVolumeClaims = corev1.Resource("persistentvolumeclaims")
)

// objectOf is the object of a request if it is about the resource itself, not a subresource.
func objectOf[T any](a admission.Attributes, resource schema.GroupResource) (obj T, ok bool, err error) {
	if !is(a, resource, "") {
		return obj, false, nil
	}
	obj, err = cast[T](a.GetObject())
	return obj, err == nil, err
}

func cast[T any](obj any) (T, error) {
	o, ok := obj.(T)
	if !ok {
		return o, fmt.Errorf("expected a %T, got a %T", o, obj)
	}
	return o, nil
}

// forbid refuses a request.
func forbid(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// containers calls visit for the init containers and the containers of a pod.
func containers(spec *corev1.PodSpec, visit func(c *corev1.Container)) {
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i])
	}
}
