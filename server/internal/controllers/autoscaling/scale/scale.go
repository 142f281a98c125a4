// Package scale reads and writes the scale subresource of objects of any kind.
package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
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
	return decode(c.Discovery.RESTClient().Get().AbsPath(path).
		SetHeader("Accept", "application/json").Do(ctx))
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
	return decode(c.Discovery.RESTClient().Put().AbsPath(path).
		SetHeader("Accept", "application/json").SetHeader("Content-Type", "application/json").
		Body(body).Do(ctx))
}

func decode(answer rest.Result) (*autoscalingv1.Scale, error) {
	if err := answer.Error(); err != nil { // that of Raw would not name the object
		return nil, err
	}
	data, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	s := &autoscalingv1.Scale{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("decode scale: %w", err)
	}
	return s, nil
}

// path returns the path of the scale of an object. If nobody serves the kind, the error says so as
// that of a RESTMapper does.
func (c Client) path(namespace, apiVersion, kind, name string) (string, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return "", err
	}
	list, err := c.resources(gv)
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
		return "", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: gv.Group, Kind: kind}}
	case !scaled[resource]:
		return "", fmt.Errorf("%s does not implement the scale subresource",
			schema.GroupResource{Group: gv.Group, Resource: resource})
	}
	prefix := "/apis/" + list.GroupVersion
	if gv.Group == "" {
		prefix = "/api/" + list.GroupVersion
	}
	return fmt.Sprintf("%s/namespaces/%s/%s/%s/scale", prefix, namespace, resource, name), nil
}

// resources returns the resources of a version or, if it is not served, of the preferred version of
// its group. An object is the same in all versions.
func (c Client) resources(gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	list, err := c.Discovery.ServerResourcesForGroupVersion(gv.String())
	if !apierrors.IsNotFound(err) {
		return list, err
	}
	groups, err := c.Discovery.ServerGroups()
	if err != nil {
		return nil, err
	}
	for _, group := range groups.Groups {
		if group.Name == gv.Group {
			return c.Discovery.ServerResourcesForGroupVersion(group.PreferredVersion.GroupVersion)
		}
	}
	return &metav1.APIResourceList{}, nil
}
