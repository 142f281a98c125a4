package examples_test

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server/servertest"
)

// pondReconciler creates a Deployment for every Pond and reports its replicas in the Pond's status.
type pondReconciler struct{ client.Client }

var pondKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Pond"}

func newPond() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(pondKind)
	return u
}

func (r *pondReconciler) Reconcile(
	ctx context.Context, request reconcile.Request,
) (reconcile.Result, error) {
	pond := newPond()
	if err := r.Get(ctx, request.NamespacedName, pond); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ducks, _, err := unstructured.NestedInt64(pond.Object, "spec", "ducks")
	if err != nil {
		return reconcile.Result{}, err
	}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: pond.GetNamespace(), Name: pond.GetName()},
	}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"pond": pond.GetName()}
		deployment.Spec.Replicas = new(int32(ducks))
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "duck", Image: "duck:1"}}
		return controllerutil.SetControllerReference(pond, deployment, r.Scheme())
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := unstructured.SetNestedField(pond.Object, int64(*deployment.Spec.Replicas),
		"status", "ducks"); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.Status().Update(ctx, pond)
}

func TestControllerRuntimeManager(t *testing.T) {
	t.Parallel()
	ctrl.SetLogger(logr.Discard())
	s := servertest.Run(t)
	k := kubectl.New(t, s)
	k.Apply(pondsDefinition)
	k.WaitEstablished("ponds.example.com")

	manager, err := ctrl.NewManager(servertest.As(s.RESTConfig(), "ponds"), ctrl.Options{
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "ponds.example.com",
		LeaderElectionNamespace: "default",
		Controller:              config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(newPond()).Owns(&appsv1.Deployment{}).
		Complete(&pondReconciler{manager.GetClient()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	k.Apply("apiVersion: example.com/v1\nkind: Pond\nmetadata: {name: park}\nspec: {ducks: 3}")
	k.Run("wait", "--for=jsonpath={.status.ducks}=3", "pond/park", "--timeout=60s")
	if got := k.Run("get", "deployment", "park", "-o",
		"jsonpath={.spec.replicas} {.metadata.ownerReferences[0].kind}"); got != "3 Pond" {
		t.Errorf("deployment: %s", got)
	}
	k.Run("patch", "pond", "park", "--type=merge", "-p", `{"spec":{"ducks":5}}`)
	k.Run("wait", "--for=jsonpath={.spec.replicas}=5", "deployment/park", "--timeout=60s")

	// The manager recreates a deleted Deployment.
	k.Run("delete", "deployment", "park")
	eventually(t, func() error {
		var d appsv1.Deployment
		err := manager.GetAPIReader().Get(t.Context(),
			client.ObjectKey{Namespace: "default", Name: "park"}, &d)
		if apierrors.IsNotFound(err) || err == nil {
			return err
		}
		t.Fatal(err)
		return nil
	})
	if holder := k.Run("get", "lease", "ponds.example.com", "-o",
		"jsonpath={.spec.holderIdentity}"); holder == "" {
		t.Error("the lease has no holder")
	}
}

const pondsDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ponds.example.com}
spec:
  group: example.com
  names: {plural: ponds, singular: pond, kind: Pond}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {ducks: {type: integer}}}
          status: {type: object, properties: {ducks: {type: integer}}}
`
