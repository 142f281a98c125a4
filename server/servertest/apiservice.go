package servertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var apiServicesResource = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")

// APIService registers a group version of an extension API server that the test process runs at an
// endpoint of [NewEndpoint], and waits until it is available and in discovery:
//
//	e := servertest.NewEndpoint(t)
//	go serve(e.Addr(), e.CertDir)
//	servertest.APIService(t, s, e, schema.GroupVersion{Group: "example.com", Version: "v1"})
//
// It waits for the server to listen before it registers it. The aggregator trusts e.CABundle and
// reaches the server as a service of the namespace "default". The registration is deleted when the
// test ends.
//
// An extension API server that delegates authentication and authorization needs a user with some
// permissions and a kubeconfig: see [User] and [Kubeconfig].
func APIService(t TB, c API, e *Endpoint, version schema.GroupVersion) {
	t.Helper()
	what := "register " + version.String()
	do(t, c, what, func(ctx context.Context, k *clients) error {
		if err := until(ctx, e.handshake); err != nil {
			return fmt.Errorf("server at %s: %w", e.Addr(), err)
		}
		service, err := k.typed.CoreV1().Services(metav1.NamespaceDefault).Create(ctx,
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "servertest-"},
				Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeExternalName, ExternalName: e.Host,
				},
			}, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil {
			return fmt.Errorf("service: %w", err)
		}
		atEnd(t, c, "service "+service.Name, func(ctx context.Context, k *clients) error {
			services := k.typed.CoreV1().Services(metav1.NamespaceDefault)
			return services.Delete(ctx, service.Name, metav1.DeleteOptions{})
		})
		resource := k.dynamic.Resource(apiServicesResource)
		stored, _, err := replace(ctx, resource, e.registration(version, service.Name))
		if err != nil {
			return err
		}
		deleteAtEnd(t, c, stored, resource)
		return until(ctx, func(ctx context.Context) error {
			if err := k.available(ctx, stored.GetName()); err != nil {
				return err
			}
			if err := k.reaches(ctx, version); err != nil {
				return err
			}
			return k.hasVersion(ctx, version)
		})
	})
}

func (e *Endpoint) registration(
	version schema.GroupVersion, service string,
) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiregistrationv1.SchemeGroupVersion.String(),
		"kind":       "APIService",
		"metadata":   map[string]any{"name": version.Version + "." + version.Group},
		"spec": map[string]any{
			"group":    version.Group,
			"version":  version.Version,
			"caBundle": base64.StdEncoding.EncodeToString(bytes.TrimSpace(e.CABundle)),
			"service": map[string]any{
				"namespace": metav1.NamespaceDefault, "name": service, "port": int64(e.Port),
			},
			// Priorities only order groups and versions with equal names and kinds.
			"groupPriorityMinimum": int64(1000),
			"versionPriority":      int64(15),
		},
	}}
}

// available returns an error unless an APIService is available.
func (k *clients) available(ctx context.Context, name string) error {
	u, err := k.dynamic.Resource(apiServicesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var s apiregistrationv1.APIService
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); err != nil {
		return fatal{err}
	}
	for _, condition := range s.Status.Conditions {
		if condition.Type != apiregistrationv1.Available {
			continue
		}
		if condition.Status == apiregistrationv1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("it is not available: %s: %s", condition.Reason, condition.Message)
	}
	return errors.New("it is not known yet whether it is available")
}

// reaches returns an error unless a request for a group version reaches its server. The aggregator
// acts on the condition of an APIService a moment after the condition is set.
func (k *clients) reaches(ctx context.Context, version schema.GroupVersion) error {
	err := k.discovery.RESTClient().Get().AbsPath("/apis/" + version.String()).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("a request for %s: %w", version, err)
	}
	return nil
}

// hasVersion returns an error unless discovery has a group version.
func (k *clients) hasVersion(ctx context.Context, version schema.GroupVersion) error {
	_, lists, err := k.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	if !slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
		return list.GroupVersion == version.String()
	}) {
		return fmt.Errorf("discovery does not have %s", version)
	}
	return nil
}
