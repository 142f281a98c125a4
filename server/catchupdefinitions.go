package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// definition decodes a stored custom resource definition. It returns nil if there is none.
func definition(stored []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	if stored == nil {
		return nil, nil
	}
	internal, err := runtime.Decode(apiextensionsapiserver.Codecs.UniversalDecoder(), stored)
	if err != nil {
		return nil, fmt.Errorf("decode a custom resource definition: %w", err)
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := apiextensionsapiserver.Scheme.Convert(internal, d, nil); err != nil {
		return nil, fmt.Errorf("convert a custom resource definition: %w", err)
	}
	return d, nil
}

// noteOpened notes how many stores the custom resources have, before the reset.
func (c *caches) noteOpened() error {
	definitions, err := c.plane.chain.Extensions.Informers.Apiextensions().V1().
		CustomResourceDefinitions().Lister().List(labels.Everything())
	for _, d := range definitions {
		gr := customResource(d)
		c.opened[gr] = c.plane.storage.Opened(gr)
	}
	return err
}

func customResource(d *apiextensionsv1.CustomResourceDefinition) schema.GroupResource {
	return schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
}

// waitDefinitions waits until custom resources are served and described as the changed definitions
// say.
func (c *caches) waitDefinitions(ctx context.Context, objects []changed) error {
	versions := map[schema.GroupVersion]sets.Set[string]{} // with the names of the definitions
	for _, o := range objects {
		if o.GroupKind != definitionKind {
			continue
		}
		before, err := definition(o.before)
		if err != nil {
			return err
		}
		after, err := definition(o.after)
		if err != nil {
			return err
		}
		for _, d := range []*apiextensionsv1.CustomResourceDefinition{before, after} {
			if d == nil {
				continue
			}
			for _, v := range d.Spec.Versions {
				gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
				if versions[gv] == nil {
					versions[gv] = sets.New[string]()
				}
				versions[gv].Insert(d.Name)
			}
		}
		if before != nil && after != nil {
			if err := c.waitStorage(ctx, before, after); err != nil {
				return err
			}
		}
	}
	for gv, names := range versions {
		if err := poll(ctx, func() (bool, error) { return c.described(ctx, gv) }); err != nil {
			return fmt.Errorf("discovery of %s, which CustomResourceDefinition %s defines: %w", gv,
				strings.Join(sets.List(names), ", "), cmp.Or(context.Cause(ctx), err))
		}
	}
	return nil
}

// waitStorage waits until requests use the storage of the new definition. The extensions server
// drops the old one when its informer's handler runs, which nothing tells, and opens the new one
// with the next request. So waitStorage makes requests until one opens a store.
func (c *caches) waitStorage(
	ctx context.Context, before, after *apiextensionsv1.CustomResourceDefinition,
) error {
	gr := customResource(after)
	unchanged := before.UID != after.UID || apiequality.Semantic.DeepEqual(before.Spec, after.Spec) &&
		apiequality.Semantic.DeepEqual(before.Status.AcceptedNames, after.Status.AcceptedNames)
	served := slices.IndexFunc(after.Spec.Versions,
		func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if unchanged || served < 0 || c.opened[gr] == 0 ||
		!apihelpers.IsCRDConditionTrue(after, apiextensionsv1.Established) {
		return nil
	}
	path := "/apis/" + gr.Group + "/" + after.Spec.Versions[served].Name
	if after.Spec.Scope == apiextensionsv1.NamespaceScoped {
		path += "/namespaces/default"
	}
	path += "/" + gr.Resource + "/none"
	err := poll(ctx, func() (bool, error) {
		c.plane.requests.Ask(ctx, path, "")
		return c.plane.storage.Opened(gr) > c.opened[gr], nil
	})
	if err != nil {
		return fmt.Errorf("storage of %s: %w", gr, cmp.Or(context.Cause(ctx), err))
	}
	return nil
}

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// described reports whether the discovery documents of a version list what its definitions serve.
func (c *caches) described(ctx context.Context, gv schema.GroupVersion) (bool, error) {
	if slices.Contains(c.plane.chain.LocalGroupVersions(), gv) {
		return true, nil // its documents are not made from definitions
	}
	all, err := c.plane.chain.Extensions.Informers.Apiextensions().V1().CustomResourceDefinitions().
		Lister().List(labels.Everything())
	if err != nil {
		return false, err
	}
	want := sets.New[string]()
	for _, d := range all {
		if d.Spec.Group == gv.Group && apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			describe(d, gv.Version, want)
		}
	}
	if service, err := c.plane.chain.Aggregator.APIRegistrationInformers.Apiregistration().V1().
		APIServices().Lister().Get(gv.Version + "." + gv.Group); err == nil &&
		service.Spec.Service != nil {
		return true, nil // an extension API server describes it
	}
	var list metav1.APIResourceList
	if !c.plane.requests.AskJSON(ctx, "/apis/"+gv.String(), "application/json", &list) {
		list.APIResources = nil
	}
	got := sets.New[string]()
	for _, r := range list.APIResources {
		got.Insert(describeResource(r.Name, r.Kind, r.SingularName, r.Namespaced, r.ShortNames,
			r.Categories))
	}
	if !got.Equal(want) {
		return false, nil
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	if !c.plane.requests.AskJSON(ctx, "/apis", aggregatedDiscovery, &groups) {
		return false, nil
	}
	return aggregated(groups, gv).Equal(want), nil
}

// describe adds what discovery says about a version of a definition.
func describe(d *apiextensionsv1.CustomResourceDefinition, version string, to sets.Set[string]) {
	names, namespaced := d.Status.AcceptedNames, d.Spec.Scope == apiextensionsv1.NamespaceScoped
	for _, v := range d.Spec.Versions {
		if v.Name != version || !v.Served {
			continue
		}
		to.Insert(describeResource(names.Plural, names.Kind, names.Singular, namespaced,
			names.ShortNames, names.Categories))
		if v.Subresources != nil && v.Subresources.Status != nil {
			to.Insert(describeResource(names.Plural+"/status", names.Kind, "", namespaced, nil, nil))
		}
		if v.Subresources != nil && v.Subresources.Scale != nil {
			to.Insert(describeResource(names.Plural+"/scale", "Scale", "", namespaced, nil, nil))
		}
	}
}

func describeResource(
	name, kind, singular string, namespaced bool, short, categories []string,
) string {
	return fmt.Sprint(name, " ", kind, " ", singular, " ", namespaced, " ", short, " ", categories)
}

// aggregated returns what the aggregated discovery document says about a version.
func aggregated(all apidiscoveryv2.APIGroupDiscoveryList, gv schema.GroupVersion) sets.Set[string] {
	got := sets.New[string]()
	for _, g := range all.Items {
		for _, v := range g.Versions {
			if g.Name != gv.Group || v.Version != gv.Version {
				continue
			}
			for _, r := range v.Resources {
				namespaced := r.Scope == apidiscoveryv2.ScopeNamespace
				got.Insert(describeResource(r.Resource, kindIn(r.ResponseKind), r.SingularResource, namespaced,
					r.ShortNames, r.Categories))
				for _, s := range r.Subresources {
					got.Insert(describeResource(r.Resource+"/"+s.Subresource, kindIn(s.ResponseKind), "",
						namespaced, nil, nil))
				}
			}
		}
	}
	return got
}

func kindIn(gvk *metav1.GroupVersionKind) string {
	if gvk == nil {
		return ""
	}
	return gvk.Kind
}
