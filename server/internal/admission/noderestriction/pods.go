package noderestriction

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
	"github.com/kinproc/kinproc/server/internal/podreferences"
)

func (p *restriction) pod(ctx context.Context, a admission.Attributes, node string) error {
	type request struct {
		operation   admission.Operation
		subresource string
	}
	switch (request{a.GetOperation(), a.GetSubresource()}) {
	case request{admission.Create, ""}:
		return p.mirror(ctx, a, node)
	case request{admission.Delete, ""}, request{admission.Create, "eviction"}:
		pod, err := p.existing(ctx, a, nameOf(a))
		if err == nil && pod.Spec.NodeName != node {
			err = plugin.Forbid(a, "the pod is not bound to node %q", node)
		}
		return err
	case request{admission.Update, "status"}:
		return podStatus(a, node)
	}
	return plugin.Forbid(a,
		"a kubelet may only create mirror pods, update the status of its pods, and delete or evict them")
}

// existing returns a pod. An empty name, as when a collection is deleted, is not found.
func (p *restriction) existing(
	ctx context.Context, a admission.Attributes, name string,
) (*corev1.Pod, error) {
	if name == "" {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	pod, err := p.Client.CoreV1().Pods(a.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	return pod, foundOr(a, err)
}

// mirror allows a kubelet to create mirror pods for its static pods. They may not refer to other
// objects, because the kubelet would gain access to those objects.
func (p *restriction) mirror(ctx context.Context, a admission.Attributes, node string) error {
	pod, err := plugin.Cast[*corev1.Pod](a.GetObject())
	switch {
	case err != nil:
		return admission.NewForbidden(a, err)
	case !plugin.IsMirror(pod):
		return plugin.Forbid(a, "a kubelet may only create mirror pods, which have the annotation %s",
			corev1.MirrorPodAnnotationKey)
	case pod.Spec.NodeName != node:
		return plugin.Forbid(a, "spec.nodeName must be %q", node)
	case len(pod.OwnerReferences) != 1:
		return plugin.Forbid(a, "metadata.ownerReferences must contain only the node %q", node)
	}
	owner := pod.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return plugin.Forbid(a, "metadata.ownerReferences[0] must refer to the node %q", node)
	case owner.Controller == nil || !*owner.Controller:
		return plugin.Forbid(a, "metadata.ownerReferences[0].controller must be true")
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return plugin.Forbid(a, "metadata.ownerReferences[0].blockOwnerDeletion may not be true")
	}
	is, err := p.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return foundOr(a, err)
	}
	if owner.UID != is.UID {
		return plugin.Forbid(a, "metadata.ownerReferences[0].uid does not match the UID of node %q", node)
	}
	if what := reference(&pod.Spec); what != "" {
		return plugin.Forbid(a, "a mirror pod may not refer to %s", what)
	}
	return nil
}

// reference returns a kind of object that a pod refers to or that nodes read for its volumes. It
// returns "" if there is none.
func reference(spec *corev1.PodSpec) string {
	switch {
	case spec.ServiceAccountName != "":
		return "a service account"
	case len(podreferences.Secrets(spec)) > 0:
		return "secrets"
	case readsConfigMaps(spec):
		return "config maps"
	case len(spec.ResourceClaims) > 0:
		return "resource claims"
	}
	for _, v := range spec.Volumes {
		switch {
		case v.ConfigMap != nil, v.Secret != nil, v.AzureFile != nil:
			return "config maps and secrets"
		case v.CSI != nil:
			return "CSI drivers"
		case v.Glusterfs != nil:
			return "endpoints"
		case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
			return "persistent volume claims"
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.DownwardAPI == nil {
					return "tokens, certificates, config maps and secrets in projected volumes"
				}
			}
		}
	}
	return ""
}

func readsConfigMaps(spec *corev1.PodSpec) (reads bool) {
	environment := func(env []corev1.EnvVar, from []corev1.EnvFromSource) {
		for _, e := range env {
			reads = reads || e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil
		}
		for _, e := range from {
			reads = reads || e.ConfigMapRef != nil
		}
	}
	plugin.Containers(spec, func(c *corev1.Container) { environment(c.Env, c.EnvFrom) })
	for _, c := range spec.EphemeralContainers {
		environment(c.Env, c.EnvFrom)
	}
	return reads
}

// podStatus keeps a kubelet from changing the labels and resource claims of a pod, which could make
// the pod the backend of a service or the owner of devices.
func podStatus(a admission.Attributes, node string) error {
	pod, err := plugin.Cast[*corev1.Pod](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	old, err := plugin.Cast[*corev1.Pod](a.GetOldObject())
	same := apiequality.Semantic.DeepEqual
	switch {
	case err != nil:
		return admission.NewForbidden(a, err)
	case old.Spec.NodeName != node:
		return plugin.Forbid(a, "the pod is not bound to node %q", node)
	case !same(old.Labels, pod.Labels):
		return plugin.Forbid(a, "a kubelet may not change metadata.labels")
	case !same(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return plugin.Forbid(a, "a kubelet may not change status.resourceClaimStatuses")
	case !same(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return plugin.Forbid(a, "a kubelet may not change status.extendedResourceClaimStatus")
	}
	return nil
}
