package install

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
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

// Webhooks creates or replaces the webhook configurations and the CRDs among the objects, and
// ignores the others. Each webhook that names a service is sent to that service's path at the
// endpoint instead. A CRD with several served versions that does not say how to convert them gets a
// webhook there. When Webhooks returns, admission calls the webhooks.
//
// With an error, the objects are those that were stored before.
func (c *Client) Webhooks(
	ctx context.Context, e *Endpoint, objects []*unstructured.Unstructured,
) (definitions, hooks []Object, err error) {
	found, kinds, redirected := 0, map[string]bool{}, []*unstructured.Unstructured(nil)
	for _, u := range objects {
		serve := e.serveAdmission
		switch {
		case isDefinition(u):
			serve, found = e.serveConversion, found+1
		case isOneOf(u, admissionregistrationv1.GroupName, mutatingKind, validatingKind):
			redirected = append(redirected, u)
		default:
			continue
		}
		if err := serve(u); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", named(u), err)
		}
	}
	if found+len(redirected) == 0 {
		return nil, nil, errors.New("the sources have no webhook configuration and no CRD")
	}
	if found > 0 {
		if definitions, err = c.CRDs(ctx, objects); err != nil {
			return definitions, nil, err
		}
	}
	for _, u := range redirected {
		o, err := c.replace(ctx, c.Dynamic.Resource(hookKinds[u.GetKind()]), u)
		if err != nil {
			return definitions, hooks, err
		}
		hooks, kinds[u.GetKind()] = append(hooks, o), true
	}
	for kind := range kinds {
		if err := c.awaitHooks(ctx, kind, e); err != nil {
			return definitions, hooks, err
		}
	}
	return definitions, hooks, nil
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
		d, err := asDefinition(u)
		if err != nil {
			return err
		}
		if len(servedBy(d)) < 2 {
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

// hookTimeout limits the wait for webhook configurations. Without the admission plugin for
// webhooks, they never take effect.
const hookTimeout = 10 * time.Second

// probeLabel marks the objects that a probe's webhook sees.
const probeLabel = "kinproc.dev/probe"

// awaitHooks waits until admission calls the webhooks of all configurations of a kind that exist.
//
// Admission learns of configurations by a watch, and nothing says how far that is. So this creates
// one more configuration, whose only webhook always fails and sees nothing but the requests of this
// function, and repeats such a request until it fails. By then, admission knows the configurations
// that were created before, too.
func (c *Client) awaitHooks(ctx context.Context, kind string, e *Endpoint) error {
	name := "0-kinproc-probe-" + rand.String(10) // mutating webhooks are called in this order
	probe, err := c.CreateIn(ctx, c.Dynamic.Resource(hookKinds[kind]), hookProbe(kind, name, e))
	if err != nil {
		return fmt.Errorf("probe of webhooks: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	lease := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": coordinationv1.SchemeGroupVersion.String(),
		"kind":       "Lease",
		"metadata": map[string]any{
			"generateName": "kinproc-probe-", "labels": map[string]any{probeLabel: name},
		},
	}}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	leases := c.Dynamic.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).
		Namespace(metav1.NamespaceDefault)
	err = Until(waiting, func(ctx context.Context) error {
		_, err := leases.Create(ctx, lease, dryRun)
		switch {
		case err == nil:
			return fmt.Errorf("the API server does not call the webhooks of a %s: "+
				"is the admission plugin for them on?", kind)
		case strings.Contains(err.Error(), "failed calling webhook"):
			return nil
		default:
			return err
		}
	})
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), hookTimeout)
	defer cancel()
	return errors.Join(err, probe.Delete(ending))
}

// hookProbe returns a configuration with a webhook that nobody serves.
func hookProbe(kind, name string, e *Endpoint) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": admissionregistrationv1.SchemeGroupVersion.String(),
		"kind":       kind,
		"metadata":   map[string]any{"name": name},
		"webhooks": []any{map[string]any{
			"name":                    "probe.kinproc.dev",
			"admissionReviewVersions": []any{"v1"},
			"sideEffects":             string(admissionregistrationv1.SideEffectClassNone),
			"failurePolicy":           string(admissionregistrationv1.Fail),
			"timeoutSeconds":          int64(1),
			"clientConfig": map[string]any{
				"url":      e.url("kinproc-probe"),
				"caBundle": base64.StdEncoding.EncodeToString(e.CABundle),
			},
			"objectSelector": map[string]any{"matchLabels": map[string]any{probeLabel: name}},
			"rules": []any{map[string]any{
				"apiGroups":   []any{coordinationv1.GroupName},
				"apiVersions": []any{"v1"},
				"operations":  []any{string(admissionregistrationv1.Create)},
				"resources":   []any{"leases"},
			}},
		}},
	}}
}
