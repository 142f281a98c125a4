package examples_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kinproc/kinproc/server/servertest"
)

// TestManagerInBubble runs a controller-runtime manager for three hours of virtual time: with
// leader election, a cache, watches, and a reconciler that comes back every hour.
func TestManagerInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctrl.SetLogger(logr.Discard())
		s := servertest.Run(t, servertest.InBubble)
		manager, err := ctrl.NewManager(s.RESTConfig(), ctrl.Options{
			Metrics:                       metricsserver.Options{BindAddress: "0"},
			LeaderElection:                true,
			LeaderElectionID:              "clocks.example.com",
			LeaderElectionNamespace:       "default",
			LeaderElectionReleaseOnCancel: true,
			Controller:                    config.Controller{SkipNameValidation: new(true)},
		})
		if err != nil {
			t.Fatal(err)
		}
		c := manager.GetClient()
		strike := func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			var clock corev1.ConfigMap
			if err := c.Get(ctx, r.NamespacedName, &clock); err != nil || r.Name != "clock" {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			if now := time.Now().UTC().Format("15h"); clock.Data[now] == "" {
				before := clock.DeepCopy()
				clock.Data = map[string]string{now: "struck"}
				for k, v := range before.Data {
					clock.Data[k] = v
				}
				if err := c.Patch(ctx, &clock, client.MergeFrom(before)); err != nil {
					return reconcile.Result{}, err
				}
			}
			return reconcile.Result{RequeueAfter: time.Until(time.Now().Truncate(time.Hour).Add(time.Hour))},
				nil
		}
		err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).
			Complete(reconcile.Func(strike))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- manager.Start(ctx) }()
		if err := c.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "clock"},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3*time.Hour + time.Minute)
		synctest.Wait()
		var clock corev1.ConfigMap
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "clock"},
			&clock); err != nil {
			t.Fatal(err)
		}
		if len(clock.Data) != 4 {
			t.Errorf("in three hours, the clock has struck: %v", clock.Data)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
}
