// Package controller has the controller of greetings, in the form of a kubebuilder project.
package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	greetingsv1 "github.com/kinproc/kinproc/examples/kubebuilder/api/v1"
)

// GreetingReconciler makes a ConfigMap for each Greeting.
type GreetingReconciler struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *GreetingReconciler) Reconcile(
	ctx context.Context, request ctrl.Request,
) (ctrl.Result, error) {
	greeting := &greetingsv1.Greeting{}
	if err := r.Get(ctx, request.NamespacedName, greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	text := "Hello, " + greeting.Spec.Name + "!"
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: greeting.Namespace, Name: greeting.Name},
	}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, config, func() error {
		config.Data = map[string]string{"text": text}
		return controllerutil.SetControllerReference(greeting, config, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	greeting.Status.Text = text
	return ctrl.Result{}, r.Status().Update(ctx, greeting)
}
