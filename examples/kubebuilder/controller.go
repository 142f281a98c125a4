package kubebuilder

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// maxSize is the largest size that the webhook accepts.
const maxSize = 5

// setUp adds the reconciler and the webhooks to a manager.
func setUp(manager ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(manager).For(&Memcached{}).Owns(&appsv1.Deployment{}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return ctrl.NewWebhookManagedBy(manager, &Memcached{}).WithDefaulter(webhooks{}).
		WithValidator(webhooks{}).Complete()
}

// reconciler maintains a Deployment for every Memcached.
type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var memcached Memcached
	if err := r.Get(ctx, request.NamespacedName, &memcached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: memcached.Namespace, Name: memcached.Name,
	}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"memcached": memcached.Name}
		deployment.Spec.Replicas = &memcached.Spec.Size
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{
			Name: "memcached", Image: "memcached:1",
		}}
		return controllerutil.SetControllerReference(&memcached, deployment, r.Scheme())
	})
	if err != nil || memcached.Status.Size == memcached.Spec.Size {
		return ctrl.Result{}, err
	}
	memcached.Status.Size = memcached.Spec.Size
	return ctrl.Result{}, r.Status().Update(ctx, &memcached)
}

// webhooks set defaults and check sizes.
type webhooks struct{}

func (webhooks) Default(_ context.Context, m *Memcached) error {
	if m.Spec.Size == 0 {
		m.Spec.Size = 1
	}
	return nil
}

func (webhooks) ValidateCreate(_ context.Context, m *Memcached) (admission.Warnings, error) {
	return nil, m.validate()
}

func (webhooks) ValidateUpdate(_ context.Context, _, m *Memcached) (admission.Warnings, error) {
	return nil, m.validate()
}

func (webhooks) ValidateDelete(context.Context, *Memcached) (admission.Warnings, error) {
	return nil, nil
}

func (m *Memcached) validate() error {
	if m.Spec.Size < 0 || m.Spec.Size > maxSize {
		return fmt.Errorf("spec.size: %d is not between 0 and %d", m.Spec.Size, maxSize)
	}
	return nil
}
