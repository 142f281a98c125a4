package extensions

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

	"github.com/kinproc/kinproc/chain/internal/catchup"
)

var definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition").
	GroupKind()

// CatchUp waits until custom resources are served and described as the changed CRDs say. The
// function elsewhere reports which versions are not described by CRDs.
func (s *Server) CatchUp(
	ctx context.Context, changes catchup.Changes, elsewhere func(schema.GroupVersion) bool,
) error {
	store := s.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer().GetStore()
	if err := changes.WaitStore(ctx, definitionKind, store); err != nil {
		return err
	}
	versions := map[schema.GroupVersion]sets.Set[string]{} // with the names of the CRDs
	for _, o := range changes.Of(definitionKind) {
		before, err := definition(o.Before)
		if err != nil {
			return err
		}
		after, err := definition(o.After)
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
			if err := s.waitStorage(ctx, changes, before, after); err != nil {
				return err
			}
		}
	}
	for gv, names := range versions {
		err := catchup.Poll(ctx, func() (bool, error) {
			if elsewhere(gv) {
				return true, nil
			}
			return s.described(ctx, gv)
		})
		if err != nil {
			return fmt.Errorf("discovery of %s, which CustomResourceDefinition %s defines: %w", gv,
				strings.Join(sets.List(names), ", "), cmp.Or(context.Cause(ctx), err))
		}
	}
	return nil
}

// waitStorage waits until requests use the storage of the new CRD. The extensions server drops the
// old storage in a handler of its informer, at a time that it does not report, and opens the new
// storage with the next request. So waitStorage makes requests until one opens a store.
func (s *Server) waitStorage(
	ctx context.Context, changes catchup.Changes,
	before, after *apiextensionsv1.CustomResourceDefinition,
) error {
	gr := customResource(after)
	unchanged := before.UID != after.UID || apiequality.Semantic.DeepEqual(before.Spec, after.Spec) &&
		apiequality.Semantic.DeepEqual(before.Status.AcceptedNames, after.Status.AcceptedNames)
	served := slices.IndexFunc(after.Spec.Versions,
		func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if unchanged || served < 0 || changes.Opened[gr] == 0 ||
		!apihelpers.IsCRDConditionTrue(after, apiextensionsv1.Established) {
		return nil
	}
	path := "/apis/" + gr.Group + "/" + after.Spec.Versions[served].Name
	if after.Spec.Scope == apiextensionsv1.NamespaceScoped {
		path += "/namespaces/default"
	}
	path += "/" + gr.Resource + "/none"
	err := catchup.Poll(ctx, func() (bool, error) {
		s.client.Get(ctx, path, "")
		return s.backend.Opened()[gr] > changes.Opened[gr], nil
	})
	if err != nil {
		return fmt.Errorf("storage of %s: %w", gr, cmp.Or(context.Cause(ctx), err))
	}
	return nil
}

// described reports whether the discovery documents of a version list what its CRDs serve.
func (s *Server) described(ctx context.Context, gv schema.GroupVersion) (bool, error) {
	all, err := s.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister().
		List(labels.Everything())
	if err != nil {
		return false, err
	}
	want := sets.New[string]()
	for _, d := range all {
		if d.Spec.Group == gv.Group && apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			describe(d, gv.Version, want)
		}
	}
	var list metav1.APIResourceList
	if !s.client.GetJSON(ctx, "/apis/"+gv.String(), "application/json", &list) {
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
	if !s.client.GetJSON(ctx, "/apis", catchup.AggregatedDiscovery, &groups) {
		return false, nil
	}
	return aggregated(groups, gv).Equal(want), nil
}

// describe adds what discovery says about a version of a CRD.
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

// definition decodes a stored CRD. It returns nil if there is none.
func definition(stored []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	if stored == nil {
		return nil, nil
	}
	internal, err := runtime.Decode(apiextensionsapiserver.Codecs.UniversalDecoder(), stored)
	if err != nil {
		return nil, fmt.Errorf("decode a CRD: %w", err)
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := apiextensionsapiserver.Scheme.Convert(internal, d, nil); err != nil {
		return nil, fmt.Errorf("convert a CRD: %w", err)
	}
	return d, nil
}

func customResource(d *apiextensionsv1.CustomResourceDefinition) schema.GroupResource {
	return schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
}
