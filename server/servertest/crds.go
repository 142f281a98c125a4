package servertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
)

var definitionsResource = apiextensionsv1.SchemeGroupVersion.WithResource(
	"customresourcedefinitions")

// CRDs installs the CRDs (CustomResourceDefinitions) that the sources
// have, and ignores their other objects. It returns when the CRDs are established, their
// resources can be created and listed, and discovery has them. A CRD that exists already is
// replaced.
//
// The sources are manifests as controller-gen writes them, objects, or Go types; see [GoTypes].
//
// In a cluster that outlives the test, what CRDs has created is deleted when the test
// ends, and all custom resources with them. If several tests use the same CRDs there,
// install them in [MainWith].
func CRDs(t TB, c API, sources ...Source) {
	t.Helper()
	do(t, c, "install CRDs", func(ctx context.Context, k *clients) error {
		objects, err := readAll(sources)
		if err != nil {
			return err
		}
		definitions := pickDefinitions(objects)
		if len(definitions) == 0 {
			return errors.New("the sources have no CustomResourceDefinition")
		}
		return k.installDefinitions(ctx, t, c, definitions)
	})
}

func pickDefinitions(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return pick(objects, apiextensionsv1.GroupName, "CustomResourceDefinition")
}

// installDefinitions creates or replaces CRDs and waits until they are served.
func (k *clients) installDefinitions(
	ctx context.Context, t TB, c API, definitions []*unstructured.Unstructured,
) error {
	resource := k.dynamic.Resource(definitionsResource)
	for _, u := range definitions {
		delete(u.Object, "status") // old versions of controller-gen write an empty one
		stored, created, err := replace(ctx, resource, u)
		if err != nil {
			return fmt.Errorf("%s: %w", named(u), err)
		}
		if created && !endsWithTests(c) {
			deleteAtEnd(t, c, stored, resource)
		}
	}
	return k.awaitServed(ctx, definitions)
}

// served is a version of a custom resource.
type served struct{ group, version, plural string }

func (s served) groupVersion() string { return s.group + "/" + s.version }

// awaitServed waits until custom resources of the CRDs can be created and listed, and
// discovery has them.
func (k *clients) awaitServed(ctx context.Context, definitions []*unstructured.Unstructured) error {
	if len(definitions) == 0 {
		return nil
	}
	var all []served
	var group errgroup.Group
	group.SetLimit(8)
	for _, u := range definitions {
		var d apiextensionsv1.CustomResourceDefinition
		if err := convert(u, &d); err != nil {
			return err
		}
		versions := servedBy(&d)
		all = append(all, versions...)
		group.Go(func() error {
			if err := k.awaitResource(ctx, d.Name, versions); err != nil {
				return fmt.Errorf("CRD %s: %w", d.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	k.mapper.Reset()
	return until(ctx, func(ctx context.Context) error { return k.discovered(ctx, all) })
}

func convert(u *unstructured.Unstructured, d *apiextensionsv1.CustomResourceDefinition) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return fmt.Errorf("%s: %w", named(u), err)
	}
	return nil
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

// nameCheck is when a CRD that is not served yet is asked whether its names were refused. That is
// rare, and CRDs can be large.
const nameCheck = 200 * time.Millisecond

// awaitResource waits until a CRD's resources can be listed in all versions, and the CRD is
// established.
func (k *clients) awaitResource(ctx context.Context, name string, versions []served) error {
	since := time.Now()
	for _, v := range versions {
		err := until(ctx, func(ctx context.Context) error {
			path := "/apis/" + v.groupVersion() + "/" + v.plural
			err := k.discovery.RESTClient().Get().AbsPath(path).Param("limit", "1").Do(ctx).Error()
			if isAnswer(err) {
				return nil
			}
			if time.Since(since) > nameCheck {
				if refused := k.established(ctx, name); errors.As(refused, new(fatal)) {
					return refused
				}
			}
			return fmt.Errorf("%s is not served: %w", v.groupVersion(), err)
		})
		if err != nil {
			return err
		}
	}
	return until(ctx, func(ctx context.Context) error { return k.established(ctx, name) })
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

// established returns an error unless a CRD is established. The error is fatal if the
// CRD never will be.
func (k *clients) established(ctx context.Context, name string) error {
	u, err := k.dynamic.Resource(definitionsResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var d apiextensionsv1.CustomResourceDefinition
	if err := convert(u, &d); err != nil {
		return fatal{err}
	}
	for _, condition := range d.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.Established &&
			condition.Status == apiextensionsv1.ConditionTrue:
			return nil
		case condition.Type == apiextensionsv1.NamesAccepted &&
			condition.Status == apiextensionsv1.ConditionFalse:
			return fatal{fmt.Errorf("its names are not accepted: %s", condition.Message)}
		}
	}
	return errors.New("it is not established")
}

// discovered returns an error unless discovery has all resources, in both of its forms.
func (k *clients) discovered(ctx context.Context, all []served) error {
	_, lists, err := k.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	groupVersions := map[string]*metav1.APIResourceList{}
	for _, list := range lists {
		groupVersions[list.GroupVersion] = list
	}
	single := map[string]*metav1.APIResourceList{}
	for _, s := range all {
		name := s.groupVersion()
		if single[name] == nil {
			list, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, name)
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

func has(list *metav1.APIResourceList, plural string) bool {
	return list != nil && slices.ContainsFunc(list.APIResources,
		func(r metav1.APIResource) bool { return r.Name == plural })
}
