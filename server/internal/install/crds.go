package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
)

// servedTimeout limits the wait until the resources of CRDs are served, an order of magnitude above
// what it takes on a loaded machine with the race detector.
const servedTimeout = time.Minute

var definitionsResource = apiextensionsv1.SchemeGroupVersion.WithResource(
	"customresourcedefinitions")

// CRDs creates or replaces the CRDs among the objects, and ignores the others. When it returns, the
// CRDs are established, their resources are served, and discovery has them.
//
// With an error, the objects are those that were stored before.
func (c *Client) CRDs(
	ctx context.Context, objects []*unstructured.Unstructured,
) (stored []Object, err error) {
	var definitions []*unstructured.Unstructured
	for _, u := range objects {
		if !isDefinition(u) {
			continue
		}
		delete(u.Object, "status") // old versions of controller-gen write an empty one
		o, err := c.replace(ctx, c.Dynamic.Resource(definitionsResource), u)
		if err != nil {
			return stored, err
		}
		stored, definitions = append(stored, o), append(definitions, u)
	}
	if len(definitions) == 0 {
		return nil, errors.New("the sources have no CustomResourceDefinition")
	}
	return stored, c.awaitServed(ctx, definitions)
}

func isDefinition(u *unstructured.Unstructured) bool {
	return isOneOf(u, apiextensionsv1.GroupName, "CustomResourceDefinition")
}

// isOneOf reports whether an object is of one of the kinds of an API group, in any version.
func isOneOf(u *unstructured.Unstructured, group string, kinds ...string) bool {
	kind := u.GroupVersionKind()
	return kind.Group == group && slices.Contains(kinds, kind.Kind)
}

// served is a version of a custom resource.
type served struct{ group, version, plural string }

func (s served) groupVersion() string { return s.group + "/" + s.version }

// awaitServed waits until custom resources of the CRDs can be created and listed, and
// discovery has them.
func (c *Client) awaitServed(ctx context.Context, definitions []*unstructured.Unstructured) error {
	if len(definitions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	of := map[string]*apiextensionsv1.CustomResourceDefinition{} // the last one of each name
	for _, u := range definitions {
		d, err := asDefinition(u)
		if err != nil {
			return err
		}
		of[d.Name] = d
	}
	var group errgroup.Group
	group.SetLimit(8)
	var all []served
	for name, d := range of {
		all = append(all, servedBy(d)...)
		group.Go(func() error {
			if err := c.awaitDefinition(ctx, d); err != nil {
				return fmt.Errorf("CRD %s: %w", name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.mapper.Reset()
	return Until(ctx, func(ctx context.Context) error { return c.discovered(ctx, all) })
}

func asDefinition(u *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	var d apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", named(u), err)
	}
	return &d, nil
}

func servedBy(d *apiextensionsv1.CustomResourceDefinition) []served {
	var versions []served
	for _, v := range d.Spec.Versions {
		if v.Served {
			versions = append(versions, served{d.Spec.Group, v.Name, d.Spec.Names.Plural})
		}
	}
	return versions
}

// awaitDefinition waits until a CRD is established, and its resources can be listed in all
// versions.
func (c *Client) awaitDefinition(
	ctx context.Context, d *apiextensionsv1.CustomResourceDefinition,
) error {
	n := d.Spec.Names
	names := append([]string{n.Plural, n.Kind, // and what is the default of those left out
		cmp.Or(n.Singular, strings.ToLower(n.Kind)), cmp.Or(n.ListKind, n.Kind+"List"),
	}, n.ShortNames...)
	err := Await(ctx, c.Dynamic.Resource(definitionsResource), d.Name,
		func(u *unstructured.Unstructured) error { return established(u, names) })
	if err != nil {
		return err
	}
	for _, v := range servedBy(d) {
		err := Until(ctx, func(ctx context.Context) error {
			path := "/apis/" + v.groupVersion() + "/" + v.plural
			err := c.Discovery.RESTClient().Get().AbsPath(path).Param("limit", "1").Do(ctx).Error()
			if isAnswer(err) {
				return nil
			}
			return fmt.Errorf("%s is not served: %w", v.groupVersion(), err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isAnswer reports whether a list was answered by the resource's handler, if only with an error,
// such as one of a conversion webhook that is not up yet.
func isAnswer(err error) bool {
	if err == nil {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsNotFound(err) &&
		!apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err)
}

// established returns an error unless a CRD is established. The error is fatal if one of its names
// is refused: a condition that is older than the names may be about others.
func established(u *unstructured.Unstructured, names []string) error {
	d, err := asDefinition(u)
	if err != nil {
		return fatal{err}
	}
	for _, condition := range d.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.Established &&
			condition.Status == apiextensionsv1.ConditionTrue:
			return nil
		case condition.Type == apiextensionsv1.NamesAccepted &&
			condition.Status == apiextensionsv1.ConditionFalse:
			err := fmt.Errorf("its names are not accepted: %s", condition.Message)
			if slices.ContainsFunc(names, func(name string) bool {
				return strings.Contains(condition.Message, strconv.Quote(name))
			}) {
				return fatal{err}
			}
			return err
		}
	}
	return errors.New("it is not established")
}

// discovered returns an error unless discovery has all resources, in both of its forms.
func (c *Client) discovered(ctx context.Context, all []served) error {
	groupVersions, err := c.groupVersions(ctx)
	if err != nil {
		return err
	}
	single := map[string]*metav1.APIResourceList{}
	for _, s := range all {
		name := s.groupVersion()
		if single[name] == nil {
			list, err := c.Discovery.ServerResourcesForGroupVersionWithContext(ctx, name)
			if err != nil {
				return fmt.Errorf("discovery of %s: %w", name, err)
			}
			single[name] = list
		}
		if !has(groupVersions[name], s.plural) || !has(single[name], s.plural) {
			return fmt.Errorf("discovery does not have %s in %s", s.plural, name)
		}
	}
	return nil
}

// groupVersions returns the resources that discovery has, by their groups and versions.
func (c *Client) groupVersions(
	ctx context.Context,
) (map[string]*metav1.APIResourceList, error) {
	_, lists, err := c.Discovery.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	groupVersions := map[string]*metav1.APIResourceList{}
	for _, list := range lists {
		groupVersions[list.GroupVersion] = list
	}
	return groupVersions, nil
}

func has(list *metav1.APIResourceList, plural string) bool {
	return list != nil && slices.ContainsFunc(list.APIResources,
		func(r metav1.APIResource) bool { return r.Name == plural })
}
