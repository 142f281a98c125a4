// Package stores is an operator with mistakes that operators make, to show how package explore
// finds them. Each mistake can be planted by itself. Without any, the operator is right.
//
// A Store, which stands for a database, gets a Secret, a ConfigMap, a Service and a claim for each
// replica. The ConfigMap "stores" in its namespace lists all Stores, and the namespace "backups"
// has a ConfigMap for each.
package stores

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// CRD is the manifest of the CRD of Stores.
//
//go:embed crd.yaml
var CRD string

// Kind is the kind of Stores.
var Kind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Store"}

// finalizer keeps a Store until its backup is deleted.
const finalizer = "example.com/backup"

// Mistakes are the mistakes that an operator makes.
type Mistakes struct {
	// HalfDone takes a Store that has its Secret for one that has everything else too.
	HalfDone bool
	// TrustsCache reads Stores from a cache, which may be behind, and deletes claims accordingly.
	TrustsCache bool
	// ForgetsConflict lists a Store when it is new, and does not repeat that after a conflict.
	ForgetsConflict bool
	// TrustsDeletion deletes backups when it sees that a Store is deleted, which it may not see.
	TrustsDeletion bool
	// Insists repeats the creation of a Service until it succeeds, although the Service may exist.
	Insists bool
	// Overwrites updates the backup of a Store without a resource version.
	Overwrites bool
	// TrustsUpdate notices a new version only if it sees the old one before.
	TrustsUpdate bool
}

// All are all mistakes.
var All = Mistakes{true, true, true, true, true, true, true}

// Operator returns an operator that runs until ctx ends.
func Operator(m Mistakes) func(ctx context.Context, config *rest.Config) error {
	return func(ctx context.Context, c *rest.Config) error {
		manager, err := ctrl.NewManager(c, ctrl.Options{
			Logger:     logr.Discard(),
			Metrics:    metricsserver.Options{BindAddress: "0"},
			Controller: config.Controller{SkipNameValidation: new(true)},
		})
		if err != nil {
			return err
		}
		live, err := client.New(c, client.Options{})
		if err != nil {
			return err
		}
		o := &operator{Mistakes: m, live: live, stores: live}
		if m.TrustsCache {
			o.stores = manager.GetCache()
		}
		err = ctrl.NewControllerManagedBy(manager).Named("stores").
			WatchesRawSource(source.Kind(manager.GetCache(), newStore(), o.handler())).Complete(o)
		if err != nil {
			return err
		}
		return manager.Start(ctx)
	}
}

type operator struct {
	Mistakes
	live   client.Client
	stores client.Reader
}

func newStore() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(Kind)
	return u
}

// object is what the manager's cache has of a Store.
type object = *unstructured.Unstructured

// handler returns what turns events into work.
func (o *operator) handler() handler.TypedEventHandler[object, reconcile.Request] {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue, u object) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(u)})
	}
	return handler.TypedFuncs[object, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[object], q queue) {
			add(q, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[object], q queue) {
			if o.TrustsUpdate && version(e.ObjectOld) != version(e.ObjectNew) {
				_ = o.upgrade(ctx, e.ObjectNew)
			}
			add(q, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[object], _ queue) {
			if o.TrustsDeletion {
				_ = o.live.Delete(ctx, backupOf(e.Object))
			}
		},
	}
}

// Reconcile makes the objects of a Store what they should be.
func (o *operator) Reconcile(
	ctx context.Context, request reconcile.Request,
) (reconcile.Result, error) {
	store := newStore()
	if err := o.stores.Get(ctx, request.NamespacedName, store); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	steps := []func(context.Context, *unstructured.Unstructured) error{
		o.backUp, o.set, o.expose, o.list, o.claim, o.release, o.upgradeIfNew,
	}
	if store.GetDeletionTimestamp() != nil {
		steps = []func(context.Context, *unstructured.Unstructured) error{o.finalize}
	}
	for _, step := range steps {
		if err := step(ctx, store); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// backUp creates the backup of a Store, which is in another namespace, so that no owner reference
// deletes it.
func (o *operator) backUp(ctx context.Context, store *unstructured.Unstructured) error {
	if !o.TrustsDeletion && controllerutil.AddFinalizer(store, finalizer) {
		if err := o.live.Update(ctx, store); err != nil {
			return err
		}
	}
	backup := backupOf(store)
	if err := o.ensure(ctx, backup); err != nil {
		return err
	}
	present := &corev1.ConfigMap{}
	err := o.live.Get(ctx, client.ObjectKeyFromObject(backup), present)
	if err != nil || present.Data["version"] == backup.Data["version"] {
		return err
	}
	if o.Overwrites {
		return o.live.Update(ctx, backup)
	}
	present.Data = backup.Data
	return o.live.Update(ctx, present)
}

func backupOf(store *unstructured.Unstructured) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "backups", Name: store.GetNamespace() + "-" + store.GetName(),
	}, Data: map[string]string{"version": version(store)}}
}

// finalize deletes the backup of a Store.
func (o *operator) finalize(ctx context.Context, store *unstructured.Unstructured) error {
	if err := o.live.Delete(ctx, backupOf(store)); client.IgnoreNotFound(err) != nil {
		return err
	}
	if controllerutil.RemoveFinalizer(store, finalizer) {
		return client.IgnoreNotFound(o.live.Update(ctx, store))
	}
	return nil
}

// set creates the password and the settings of a Store.
func (o *operator) set(ctx context.Context, store *unstructured.Unstructured) error {
	meta := o.owned(store, store.GetName())
	password := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"password": "secret"}}
	err := o.live.Create(ctx, password)
	if apierrors.IsAlreadyExists(err) && o.HalfDone {
		return nil
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return o.ensure(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"port": "5432"}})
}

// expose creates the Service of a Store.
func (o *operator) expose(ctx context.Context, store *unstructured.Unstructured) error {
	service := &corev1.Service{
		ObjectMeta: o.owned(store, store.GetName()),
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}},
	}
	err := o.ensure(ctx, service)
	for o.Insists && err != nil && ctx.Err() == nil {
		err = o.live.Create(ctx, service)
	}
	return err
}

// list adds a Store to the list of all.
func (o *operator) list(ctx context.Context, store *unstructured.Unstructured) error {
	add := func() error {
		var all corev1.ConfigMap
		key := client.ObjectKey{Namespace: store.GetNamespace(), Name: "stores"}
		if err := o.live.Get(ctx, key, &all); err != nil {
			return err
		}
		if all.Data[store.GetName()] == "yes" {
			return nil
		}
		if all.Data == nil {
			all.Data = map[string]string{}
		}
		all.Data[store.GetName()] = "yes"
		return o.live.Update(ctx, &all)
	}
	if o.ForgetsConflict {
		if reported(store) != "" {
			return nil // the Store is not new
		}
		if err := add(); !apierrors.IsConflict(err) {
			return err
		}
		return nil
	}
	return retry.RetryOnConflict(retry.DefaultRetry, add)
}

// claim creates the claims of the replicas.
func (o *operator) claim(ctx context.Context, store *unstructured.Unstructured) error {
	for i := range replicas(store) {
		claim := o.claimOf(store, i)
		claim.Spec = corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi"),
			}},
		}
		if err := o.ensure(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// release deletes the claims of replicas that are no longer wanted, and their data.
func (o *operator) release(ctx context.Context, store *unstructured.Unstructured) error {
	for i := replicas(store); ; i++ {
		claim := o.claimOf(store, i)
		err := o.live.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		if err != nil || claim.DeletionTimestamp != nil {
			return client.IgnoreNotFound(err)
		}
		err = o.live.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
}

// upgradeIfNew reports a version that is not in the status yet.
func (o *operator) upgradeIfNew(ctx context.Context, store *unstructured.Unstructured) error {
	if reported(store) == version(store) || o.TrustsUpdate && reported(store) != "" {
		return nil
	}
	return o.upgrade(ctx, store)
}

// upgrade reports the version of a Store.
func (o *operator) upgrade(ctx context.Context, store *unstructured.Unstructured) error {
	patch := fmt.Sprintf(`{"status":{"version":%q}}`, version(store))
	return o.live.Status().Patch(ctx, store.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(patch)))
}

// ensure creates an object if it does not exist. If an older one of that name is being deleted, the
// error says so, and the next attempt will find it gone.
func (o *operator) ensure(ctx context.Context, object client.Object) error {
	present := object.DeepCopyObject().(client.Object)
	err := o.live.Get(ctx, client.ObjectKeyFromObject(object), present)
	switch {
	case apierrors.IsNotFound(err):
		return o.live.Create(ctx, object)
	case err == nil && present.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s is being deleted", object.GetName())
	}
	return err
}

// owned returns the metadata of an object that is deleted with a Store.
func (o *operator) owned(store *unstructured.Unstructured, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: store.GetNamespace(), Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(store, Kind)},
	}
}

func (o *operator) claimOf(store *unstructured.Unstructured, i int) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: o.owned(store, fmt.Sprintf("%s-%d", store.GetName(), i)),
	}
}

func replicas(store *unstructured.Unstructured) int {
	n, _, _ := unstructured.NestedInt64(store.Object, "spec", "replicas")
	return int(n)
}

func version(store *unstructured.Unstructured) string {
	v, _, _ := unstructured.NestedString(store.Object, "spec", "version")
	return v
}

// reported returns the version in the status of a Store.
func reported(store *unstructured.Unstructured) string {
	v, _, _ := unstructured.NestedString(store.Object, "status", "version")
	return v
}
