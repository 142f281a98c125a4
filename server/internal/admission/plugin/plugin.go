// Package plugin holds what the admission plugins of this server share.
package plugin

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
)

// WantsClient is embedded by plugins that read objects. Its client calls the server in the same
// process, so the plugin sees the latest state. The plugins of kube-apiserver keep informers
// instead, which take memory and lag behind.
type WantsClient struct{ Client kubernetes.Interface }

func (w *WantsClient) SetExternalKubeClientSet(client kubernetes.Interface) { w.Client = client }

func (w *WantsClient) ValidateInitialization() error {
	if w.Client == nil {
		return errors.New("no client was set")
	}
	return nil
}

// WantsAuthorizer is embedded by plugins that check what the user may do.
type WantsAuthorizer struct {
	Authorizer authorizer.UnconditionalAuthorizer
}

func (w *WantsAuthorizer) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) {
	w.Authorizer = a
}

func (w *WantsAuthorizer) ValidateInitialization() error {
	if w.Authorizer == nil {
		return errors.New("no authorizer was set")
	}
	return nil
}

// Is reports whether a request is about the resource and subresource. Any version will do. An empty
// subresource stands for the resource itself.
func Is(a admission.Attributes, resource schema.GroupResource, subresource string) bool {
	return a.GetResource().GroupResource() == resource && a.GetSubresource() == subresource
}

// Object returns the object of a request. Ok is false if the request is about another resource, or
// about a subresource.
func Object[T any](a admission.Attributes, r schema.GroupResource) (obj T, ok bool, err error) {
	if !Is(a, r, "") {
		return obj, false, nil
	}
	obj, err = Cast[T](a.GetObject())
	return obj, err == nil, err
}

// Cast returns the object as a T, or an error if it is something else.
func Cast[T any](obj any) (T, error) {
	o, ok := obj.(T)
	if !ok {
		return o, fmt.Errorf("expected a %T, got a %T", o, obj)
	}
	return o, nil
}

// Forbid refuses a request with 403 Forbidden.
func Forbid(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// Containers calls visit for each init container and each container of a pod.
func Containers(spec *corev1.PodSpec, visit func(c *corev1.Container)) {
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i])
	}
}

// IsMirror reports whether a pod stands for a static pod, which its node runs without being asked.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}
