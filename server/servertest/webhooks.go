package servertest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
	// convertPath is where controller-runtime serves conversion.
	convertPath = "/convert"
)

// hookKinds are the kinds of webhook configurations and their resources.
var hookKinds = map[string]schema.GroupVersionResource{
	mutatingKind:   hookResource("mutatingwebhookconfigurations"),
	validatingKind: hookResource("validatingwebhookconfigurations"),
}

func hookResource(name string) schema.GroupVersionResource {
	return admissionregistrationv1.SchemeGroupVersion.WithResource(name)
}

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
		definitions := pickDefinitions(objects)
		hooks := pick(objects, admissionregistrationv1.GroupName, mutatingKind, validatingKind)
		if len(definitions)+len(hooks) == 0 {
			return errors.New("the sources have no webhook configuration and no CRD")
		}
		for _, u := range definitions {
			if err := e.serveConversion(u); err != nil {
				return fmt.Errorf("%s: %w", named(u), err)
			}
		}
		if err := k.installDefinitions(ctx, t, c, definitions); err != nil {
			return err
		}
		return k.installHooks(ctx, t, c, e, hooks)
	})
	return e
}

// installHooks creates or replaces webhook configurations and waits until they take effect.
func (k *clients) installHooks(
	ctx context.Context, t TB, c API, e *Endpoint, hooks []*unstructured.Unstructured,
) error {
	kinds := map[string]bool{}
	for _, u := range hooks {
		if err := e.serveAdmission(u); err != nil {
			return fmt.Errorf("%s: %w", named(u), err)
		}
		resource := k.dynamic.Resource(hookKinds[u.GetKind()])
		stored, _, err := replace(ctx, resource, u)
		if err != nil {
			return fmt.Errorf("%s: %w", named(u), err)
		}
		deleteAtEnd(t, c, stored, resource)
		kinds[u.GetKind()] = true
	}
	for kind := range kinds {
		if err := k.awaitHooks(ctx, kind, e); err != nil {
			return err
		}
	}
	return nil
}

// serveAdmission makes the webhooks of a configuration that have a service call the endpoint.
func (e *Endpoint) serveAdmission(u *unstructured.Unstructured) error {
	hooks, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		if hook, ok := hook.(map[string]any); ok {
			if err := e.serve(hook); err != nil {
				return err
			}
		}
	}
	return unstructured.SetNestedSlice(u.Object, hooks, "webhooks")
}

// serveConversion makes the conversion webhook of a CRD call the endpoint. If the CRD
// has several versions and no conversion, it gets a webhook.
func (e *Endpoint) serveConversion(u *unstructured.Unstructured) error {
	conversion, found, err := unstructured.NestedMap(u.Object, "spec", "conversion")
	if err != nil {
		return err
	}
	if !found {
		var d apiextensionsv1.CustomResourceDefinition
		if err := convert(u, &d); err != nil {
			return err
		}
		if len(servedBy(&d)) < 2 {
			return nil
		}
		conversion = map[string]any{
			"strategy": string(apiextensionsv1.WebhookConverter),
			"webhook": map[string]any{
				"conversionReviewVersions": []any{"v1"},
				"clientConfig": map[string]any{
					"service": map[string]any{"path": convertPath},
				},
			},
		}
	}
	if hook, ok := conversion["webhook"].(map[string]any); ok {
		if err := e.serve(hook); err != nil {
			return err
		}
	}
	return unstructured.SetNestedMap(u.Object, conversion, "spec", "conversion")
}

// serve makes a webhook that has a service call the endpoint.
func (e *Endpoint) serve(hook map[string]any) error {
	service, found, err := unstructured.NestedMap(hook, "clientConfig", "service")
	if err != nil || !found {
		return err
	}
	path, _, err := unstructured.NestedString(service, "path")
	if err != nil {
		return err
	}
	hook["clientConfig"] = map[string]any{
		"url":      e.url(path),
		"caBundle": base64.StdEncoding.EncodeToString(e.CABundle),
	}
	return nil
}

func (e *Endpoint) url(path string) string {
	return "https://" + e.Addr() + "/" + strings.TrimPrefix(path, "/")
}
