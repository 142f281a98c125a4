package servertest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
)

// hookTimeout limits the wait for webhook configurations. Without the admission plugin for
// webhooks, they never take effect.
const hookTimeout = 10 * time.Second

// probeLabel marks the objects that a probe's webhook sees.
const probeLabel = "servertest.kinproc.io/probe"

// awaitHooks waits until admission calls the webhooks of all configurations of a kind that exist.
//
// Admission learns of configurations by a watch, and nothing says how far that is. So this creates
// one more configuration, whose only webhook always fails and sees nothing but the requests of this
// function, and repeats such a request until it fails. By then, admission knows the configurations
// that were created before, too.
func (k *clients) awaitHooks(ctx context.Context, kind string, e *Endpoint) error {
	name := "0-servertest-probe-" + rand.String(10) // mutating webhooks are called in this order
	resource := k.dynamic.Resource(hookKinds[kind])
	probe := hookProbe(kind, name, e)
	if _, err := resource.Create(ctx, probe, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("probe of webhooks: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "servertest-probe-", Labels: map[string]string{probeLabel: name},
	}}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	leases := k.typed.CoordinationV1().Leases(metav1.NamespaceDefault)
	err := until(waiting, func(ctx context.Context) error {
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
	return errors.Join(err, resource.Delete(ctx, name, metav1.DeleteOptions{}))
}

// hookProbe returns a configuration with a webhook that nobody serves.
func hookProbe(kind, name string, e *Endpoint) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": admissionregistrationv1.SchemeGroupVersion.String(),
		"kind":       kind,
		"metadata":   map[string]any{"name": name},
		"webhooks": []any{map[string]any{
			"name":                    "probe.servertest.kinproc.io",
			"admissionReviewVersions": []any{"v1"},
			"sideEffects":             string(admissionregistrationv1.SideEffectClassNone),
			"failurePolicy":           string(admissionregistrationv1.Fail),
			"timeoutSeconds":          int64(1),
			"clientConfig": map[string]any{
				"url":      e.url("servertest-probe"),
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
