// Package scale reads and writes the scale subresource of objects of any kind.
package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Client reads and writes scales. It asks for the resource of a kind each time, so that it always
// knows the custom resources that there are.
type Client struct{ Discovery discovery.DiscoveryInterface }

// Get returns the scale of an object.
func (c Client) Get(
	ctx context.Context, namespace, apiVersion, kind, name string,
) (*autoscalingv1.Scale, error) {
	path, err := c.path(namespace, apiVersion, kind, name)
	if err != nil {
		return nil, err
	}
	data, err := c.Discovery.RESTClient().Get().AbsPath(path).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return decode(data)
}

// Update writes the scale of an object.
func (c Client) Update(
	ctx context.Context, s *autoscalingv1.Scale, apiVersion, kind string,
) (*autoscalingv1.Scale, error) {
	path, err := c.path(s.Namespace, apiVersion, kind, s.Name)
	if err != nil {
		return nil, err
	}
	s = s.DeepCopy()
	s.APIVersion, s.Kind = autoscalingv1.SchemeGroupVersion.String(), "Scale"
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	data, err := c.Discovery.RESTClient().Put().AbsPath(path).SetHeader("Accept", "application/json").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return decode(data)
}

func decode(data []byte) (*autoscalingv1.Scale, error) {
	s := &autoscalingv1.Scale{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("decode scale: %w", err)
	}
	return s, nil
}

// path returns the path of the scale of an object. The error is NotFound if nobody serves the kind.
func (c Client) path(namespace, apiVersion, kind, name string) (string, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return "", err
	}
	list, err := c.Discovery.ServerResourcesForGroupVersion(apiVersion)
	if err != nil {
		return "", fmt.Errorf("discover %s: %w", apiVersion, err)
	}
	resource, scaled := "", map[string]bool{}
	for i := range list.APIResources {
		r := &list.APIResources[i]
		if main, ok := strings.CutSuffix(r.Name, "/scale"); ok {
			scaled[main] = true
		} else if r.Kind == kind && !strings.Contains(r.Name, "/") {
			resource = r.Name
		}
	}
	switch {
	case resource == "":
		return "", apierrors.NewNotFound(schema.GroupResource{Group: gv.Group, Resource: kind}, name)
	case !scaled[resource]:
		return "", fmt.Errorf("%s does not implement the scale subresource",
			schema.GroupResource{Group: gv.Group, Resource: resource})
	}
	prefix := "/apis/" + apiVersion
	if gv.Group == "" {
		prefix = "/api/" + apiVersion
	}
	return fmt.Sprintf("%s/namespaces/%s/%s/%s/scale", prefix, namespace, resource, name), nil
}
