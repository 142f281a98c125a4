package kubebuilder

import (
	"context"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kinproc/kinproc/server/servertest"
)

func TestMain(m *testing.M) { servertest.MainWith(m, startOperator) }

// startOperator starts a control plane and the operator: all of the set-up that the tests need.
func startOperator(t servertest.TB) servertest.API {
	c := servertest.Cluster(t)
	e := servertest.Webhooks(t, c, servertest.Files("config/crd/bases", "config/webhook"))
	manager, err := ctrl.NewManager(c.RESTConfig(), ctrl.Options{
		Scheme:  newScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: e.Host, Port: e.Port, CertDir: e.CertDir,
		}),
	})
	if err == nil {
		err = setUp(manager)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	e.Await(t)
	return c
}
