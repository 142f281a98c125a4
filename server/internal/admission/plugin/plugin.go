// Package plugin provides what the admission plugins of this server share.
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
// process, so the plugin sees the latest state. kube-apiserver's plugins use informers instead,
// which take memory and lag behind.
type WantsClient struct{ Client kubernetes.Interface }

func (w *WantsClient) SetExternalKubeClientSet(client kubernetes.Interface) { w.Client = client }

func (w *WantsClient) ValidateInitialization() error {
	if w.Client == nil {
		return errors.New("no client was set")
	}
	return nil
}

// WantsAuthorizer is embedded by plugins that check the permissions of the user.
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

// Is reports whether a request is for the resource, in any version, and the subresource. An empty
// subresource stands for the resource itself.
func Is(a admission.Attributes, resource schema.GroupResource, subresource string) bool {
	return a.GetResource().GroupResource() == resource && a.GetSubresource() == subresource
}

// Object returns the object of a request for the resource r. Ok is false if there is an error, or
// if the request is for another resource or for a subresource.
func Object[T any](a admission.Attributes, r schema.GroupResource) (obj T, ok bool, err error) {
	if !Is(a, r, "") {
		return obj, false, nil
	}
	obj, err = Cast[T](a.GetObject())
	return obj, err == nil, err
}

// Cast returns obj as a T, or an error if it has another type.
func Cast[T any](obj any) (T, error) {
	o, ok := obj.(T)
	if !ok {
		return o, fmt.Errorf("expected a %T, got a %T", o, obj)
	}
	return o, nil
}

// Forbid returns a 403 Forbidden error for the request.
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

// IsMirror reports whether a pod is a mirror pod. It represents a static pod, which its node runs
// without being told to by the API server.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}
