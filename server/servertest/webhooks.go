package servertest

import "context"

// Webhooks installs webhooks that the test process serves, from manifests as controller-gen writes
// them. It returns where to serve them:
//
//	e := servertest.Webhooks(t, s, servertest.Files("config/crd/bases", "config/webhook"))
//	manager, err := ctrl.NewManager(s.RESTConfig(), ctrl.Options{
//		WebhookServer: webhook.NewServer(webhook.Options{
//			Host: e.Host, Port: e.Port, CertDir: e.CertDir,
//		}),
//	})
//
// or, without controller-runtime, with [net/http]:
//
//	l, err := e.Listen()
//	go http.Serve(l, handler)
//
// Of the sources' objects, Webhooks installs
//
//   - webhook configurations (MutatingWebhookConfiguration, ValidatingWebhookConfiguration). Each
//     webhook with a service is sent to that service's path at the endpoint instead.
//   - CRDs, as [CRDs] does. Conversion by a webhook is treated likewise.
//     A CRD with several served versions that does not say how to convert them gets a
//     webhook at /convert, as the kubebuilder scaffold's patches arrange it.
//
// It ignores the others, and webhooks with a URL stay as they are. When Webhooks returns, admission
// calls the webhooks. Such calls fail until somebody serves them; [Endpoint.Await] waits for that.
//
// The configurations are deleted when the test ends. They concern the whole cluster: on one that
// tests share, install them and serve them in [MainWith].
func Webhooks(t TB, c API, sources ...Source) *Endpoint {
	t.Helper()
	e := NewEndpoint(t, c)
	do(t, c, "install webhooks", func(ctx context.Context, k *clients) error {
		objects, err := readAll(sources)
		if err != nil {
			return err
		}
		definitions, hooks, err := k.Webhooks(ctx, e.installed(), objects)
		deleteCreated(t, c, definitions)
		deleteAtEnd(t, hooks...)
		return err
	})
	return e
}
