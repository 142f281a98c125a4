package install

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

var (
	apiServicesResource = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")
	servicesResource    = corev1.SchemeGroupVersion.WithResource("services")
)

// APIService registers a group version of the extension API server at an endpoint, when that
// serves, and waits until it is reached.
//
// With an error, the objects are those that were stored before.
func (c *Client) APIService(
	ctx context.Context, e *Endpoint, version schema.GroupVersion,
) (stored []Object, err error) {
	if err := e.Await(ctx); err != nil {
		return nil, fmt.Errorf("server at %s: %w", e.Addr(), err)
	}
	services := c.Dynamic.Resource(servicesResource).Namespace(metav1.NamespaceDefault)
	service, err := c.CreateIn(ctx, services, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Service",
		"metadata":   map[string]any{"generateName": c.manager + "-"},
		"spec": map[string]any{
			"type": string(corev1.ServiceTypeExternalName), "externalName": e.Host,
		},
	}})
	if err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	stored = append(stored, service)
	registered, err := c.replace(ctx, c.Dynamic.Resource(apiServicesResource),
		e.registration(version, service.GetName()))
	if err != nil {
		return stored, err
	}
	return append(stored, registered), c.AwaitAPIService(ctx, version)
}

func (e *Endpoint) registration(
	version schema.GroupVersion, service string,
) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiregistrationv1.SchemeGroupVersion.String(),
		"kind":       "APIService",
		"metadata":   map[string]any{"name": apiServiceName(version)},
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

func apiServiceName(version schema.GroupVersion) string {
	return version.Version + "." + version.Group
}

// AwaitAPIService waits until the control plane reaches the server of a group version, and has the
// version in its discovery.
func (c *Client) AwaitAPIService(ctx context.Context, version schema.GroupVersion) error {
	resource, name := c.Dynamic.Resource(apiServicesResource), apiServiceName(version)
	err := Await(ctx, resource, name, Availability)
	if err == nil {
		// The aggregator acts on the condition a moment after it has set it. The condition may also
		// be about an earlier registration.
		err = Until(ctx, func(ctx context.Context) error { return c.reaches(ctx, version) })
	}
	if err != nil {
		return fmt.Errorf("APIService %s: %w", name, err)
	}
	return nil
}

// Availability returns an error that says why the server of an APIService is not available, or nil.
func Availability(u *unstructured.Unstructured) error {
	var a apiregistrationv1.APIService
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a); err != nil {
		return fatal{err}
	}
	condition := helper.GetAPIServiceConditionByType(&a, apiregistrationv1.Available)
	switch {
	case condition == nil:
		return errors.New("the control plane has not tried yet to reach the server")
	case condition.Status != apiregistrationv1.ConditionTrue:
		return fmt.Errorf("the control plane cannot use the server: %s: %s",
			condition.Reason, condition.Message)
	}
	return nil
}

// reaches returns an error unless a request for a group version reaches its server, and discovery
// has the version.
func (c *Client) reaches(ctx context.Context, version schema.GroupVersion) error {
	if err := c.request(ctx, version); err != nil {
		return fmt.Errorf("a request through the control plane: %w", err)
	}
	known, err := c.groupVersions(ctx)
	if err == nil && known[version.String()] == nil {
		err = fmt.Errorf("discovery does not have %s yet", version)
	}
	return err
}

func (c *Client) request(ctx context.Context, version schema.GroupVersion) error {
	return c.Discovery.RESTClient().Get().AbsPath("/apis/" + version.String()).Do(ctx).Error()
}

// Unserved returns an error if the control plane serves a group version, or has it in its
// discovery.
func (c *Client) Unserved(ctx context.Context, version schema.GroupVersion) error {
	if err := c.request(ctx, version); err == nil {
		return fmt.Errorf("the control plane still serves %s", version)
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	known, err := c.groupVersions(ctx)
	if err == nil && known[version.String()] != nil {
		err = fmt.Errorf("discovery still has %s", version)
	}
	return err
}
