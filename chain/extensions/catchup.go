package extensions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kinproc/kinproc/chain/internal/catchup"
)

var definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition").
	GroupKind()

// CatchUp waits until custom resources are served and described as the changed CRDs say.
func (s *Server) CatchUp(ctx context.Context, changes catchup.Changes) error {
	store := s.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer().GetStore()
	if err := changes.WaitStore(ctx, definitionKind, store); err != nil {
		return err
	}
	groups := map[string]sets.Set[string]{} // with the names of the CRDs
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
			if groups[d.Spec.Group] == nil {
				groups[d.Spec.Group] = sets.New[string]()
			}
			groups[d.Spec.Group].Insert(d.Name)
		}
		if after == nil {
			s.discovery.forget(o.Name, "")
		}
		if before != nil && after != nil {
			if err := s.waitStorage(ctx, changes, before, after); err != nil {
				return err
			}
		}
	}
	for group, names := range groups {
		if err := s.discovery.wait(ctx, func() bool { return s.discovery.has(group) }); err != nil {
			return fmt.Errorf("discovery of %s, which CustomResourceDefinition %s defines: %w",
				group, strings.Join(sets.List(names), ", "), err)
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
