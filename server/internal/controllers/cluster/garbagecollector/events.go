package garbagecollector

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reportNamespace sends an event if the owner of a reference exists in another namespace.
func (r *run) reportNamespace(
	ctx context.Context, o *object, ref *metav1.OwnerReference, at resource,
) error {
	elsewhere, err := r.isElsewhere(ctx, o, ref, at)
	if err != nil || !elsewhere {
		return err
	}
	r.Recorder.Eventf(&corev1.ObjectReference{
		APIVersion: o.kind.GroupVersion().String(),
		Kind:       o.kind.Kind,
		Namespace:  o.namespace,
		Name:       o.name,
		UID:        o.uid,
	}, corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
		"ownerRef %s does not exist in namespace %q",
		fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", ref.APIVersion, ref.Kind, o.namespace,
			ref.Name, ref.UID), o.namespace)
	return nil
}

func (r *run) isElsewhere(
	ctx context.Context, o *object, ref *metav1.OwnerReference, at resource,
) (bool, error) {
	if namespace, ok := r.graph.namespaceOf(ref.UID); ok {
		return namespace != "" && namespace != o.namespace, nil
	}
	keys, err := r.storage.Namesakes(ctx, at.GroupResource(), ref.Name)
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		m, _, err := r.storage.Metadata(ctx, key)
		if err != nil {
			return false, err
		}
		if m != nil && m.UID == ref.UID && m.Namespace != o.namespace {
			return true, nil
		}
	}
	return false, nil
}
