package replicasets

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
)

// kind is a kind of sets of replicas. The controller sees them all as ReplicaSets.
type kind struct {
	gvk          schema.GroupVersionKind
	informer     cache.SharedIndexInformer
	view         func(ownerrefs.Object) *appsv1.ReplicaSet
	read         func(ctx context.Context, namespace, name string) (metav1.Object, error)
	updateStatus func(ctx context.Context, seen ownerrefs.Object, status appsv1.ReplicaSetStatus) error
}

func replicaSets(c *loop.Controller) kind {
	client := c.Client.AppsV1()
	return kind{
		gvk:      appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		informer: c.Informer(&appsv1.ReplicaSet{}),
		view:     func(obj ownerrefs.Object) *appsv1.ReplicaSet { return obj.(*appsv1.ReplicaSet) },
		read: func(ctx context.Context, namespace, name string) (metav1.Object, error) {
			return client.ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		updateStatus: func(
			ctx context.Context, seen ownerrefs.Object, status appsv1.ReplicaSetStatus,
		) error {
			rs := *seen.(*appsv1.ReplicaSet)
			rs.Status = status
			_, err := client.ReplicaSets(rs.Namespace).UpdateStatus(ctx, &rs, metav1.UpdateOptions{})
			return err
		},
	}
}

func replicationControllers(c *loop.Controller) kind {
	client := c.Client.CoreV1()
	return kind{
		gvk:      corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		informer: c.Informer(&corev1.ReplicationController{}),
		view: func(obj ownerrefs.Object) *appsv1.ReplicaSet {
			return viewOf(obj.(*corev1.ReplicationController))
		},
		read: func(ctx context.Context, namespace, name string) (metav1.Object, error) {
			return client.ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		updateStatus: func(
			ctx context.Context, seen ownerrefs.Object, status appsv1.ReplicaSetStatus,
		) error {
			rc := *seen.(*corev1.ReplicationController)
			rc.Status = statusOf(status)
			_, err := client.ReplicationControllers(rc.Namespace).UpdateStatus(ctx, &rc,
				metav1.UpdateOptions{})
			return err
		},
	}
}

// viewOf returns a ReplicationController as a ReplicaSet.
func viewOf(rc *corev1.ReplicationController) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        rc.Spec.Replicas,
			MinReadySeconds: rc.Spec.MinReadySeconds,
			Selector:        &metav1.LabelSelector{MatchLabels: rc.Spec.Selector},
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas:             rc.Status.Replicas,
			FullyLabeledReplicas: rc.Status.FullyLabeledReplicas,
			ReadyReplicas:        rc.Status.ReadyReplicas,
			AvailableReplicas:    rc.Status.AvailableReplicas,
			ObservedGeneration:   rc.Status.ObservedGeneration,
		},
	}
	if rc.Spec.Template != nil {
		rs.Spec.Template = *rc.Spec.Template
	}
	for _, c := range rc.Status.Conditions {
		rs.Status.Conditions = append(rs.Status.Conditions, appsv1.ReplicaSetCondition{
			Type:               appsv1.ReplicaSetConditionType(c.Type),
			Status:             c.Status,
			LastTransitionTime: c.LastTransitionTime,
			Reason:             c.Reason,
			Message:            c.Message,
		})
	}
	return rs
}

func statusOf(status appsv1.ReplicaSetStatus) corev1.ReplicationControllerStatus {
	s := corev1.ReplicationControllerStatus{
		Replicas:             status.Replicas,
		FullyLabeledReplicas: status.FullyLabeledReplicas,
		ReadyReplicas:        status.ReadyReplicas,
		AvailableReplicas:    status.AvailableReplicas,
		ObservedGeneration:   status.ObservedGeneration,
	}
	for _, c := range status.Conditions {
		s.Conditions = append(s.Conditions, corev1.ReplicationControllerCondition{
			Type:               corev1.ReplicationControllerConditionType(c.Type),
			Status:             c.Status,
			LastTransitionTime: c.LastTransitionTime,
			Reason:             c.Reason,
			Message:            c.Message,
		})
	}
	return s
}
