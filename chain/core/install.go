package core

import (
	"fmt"
	"path"
	"strings"
	"time"

	restful "github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	openapiutil "k8s.io/kube-openapi/pkg/util"
)

// installer adds API groups to the server. It does what GenericAPIServer.InstallAPIGroups does, but
// leaves for later what takes long: the routes of a resource are installed by the first request for
// it (see onDemand), and the OpenAPI definitions of a kind are built by the first
// write to it (see lazyTypes).
type installer struct {
	server   *genericapiserver.GenericAPIServer
	generic  *genericapiserver.Config
	versions *onDemand
	types    *lazyTypes // the types below the root (/api or /apis) of the group being installed
}

func install(
	server *genericapiserver.GenericAPIServer, generic *genericapiserver.Config,
	groups []*genericapiserver.APIGroupInfo,
) (*onDemand, error) {
	versions := newOnDemand(server)
	// As in kube-apiserver, the groups below /api and those below /apis each have a type converter,
	// and a write drops managedFields entries of versions that its converter does not know. So a
	// write to an event through one of its groups drops the entries made through the other.
	types := map[bool]*lazyTypes{}
	for _, legacy := range []bool{true, false} {
		types[legacy] = newLazyTypes(generic.OpenAPIV3Config,
			func() (map[schema.GroupVersionKind]string, error) {
				return typeNames(groups, legacy)
			})
	}
	for _, g := range groups {
		i := &installer{server: server, generic: generic, versions: versions, types: types[isLegacy(g)]}
		if err := i.install(g); err != nil {
			return nil, err
		}
		server.RegisterDestroyFunc(func() {
			for _, resources := range g.VersionedResourcesStorageMap {
				for _, storage := range resources {
					storage.Destroy()
				}
			}
		})
	}
	return versions, nil
}

// isLegacy reports whether the group is the legacy group, which is served below /api.
func isLegacy(g *genericapiserver.APIGroupInfo) bool { return g.PrioritizedVersions[0].Group == "" }

func (i *installer) install(g *genericapiserver.APIGroupInfo) error {
	root, manager := genericapiserver.APIGroupPrefix, i.server.AggregatedDiscoveryGroupManager
	name := g.PrioritizedVersions[0].Group
	if isLegacy(g) {
		root, manager = genericapiserver.DefaultLegacyAPIPrefix,
			i.server.AggregatedLegacyDiscoveryGroupManager
	}
	group := metav1.APIGroup{Name: name}
	for _, gv := range g.PrioritizedVersions {
		describe := func(resources []apidiscoveryv2.APIResourceDiscovery) {
			manager.AddGroupVersion(gv.Group, apidiscoveryv2.APIVersionDiscovery{
				Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
				Version:   gv.Version,
				Resources: resources,
			})
		}
		if err := i.registerKinds(g, gv); err != nil {
			return err
		}
		describe(nil) // so that the aggregator can set the version's priority
		version := i.version(g, gv, root)
		i.versions.add(path.Join(root, gv.String()), version.Storage,
			func(storage map[string]rest.Storage, in *restful.Container) error {
				part := *version
				part.Storage = storage
				resources, _, err := part.InstallREST(in)
				if err != nil {
					return fmt.Errorf("install %s: %w", gv, err)
				}
				if len(storage) == len(version.Storage) { // nothing is missing
					describe(resources)
				}
				return nil
			})
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: gv.String(),
			Version:      gv.Version,
		})
	}
	if isLegacy(g) {
		complete := discoveryManager{manager, i.versions}
		handler := discovery.NewLegacyRootAPIHandler(i.generic.DiscoveryAddresses,
			i.server.Serializer, root)
		wrapped := aggregated.WrapAggregatedDiscoveryToHandler(handler, complete, complete)
		i.server.Handler.GoRestfulContainer.Add(wrapped.GenerateWebService(root, metav1.APIVersions{}))
		return nil
	}
	group.PreferredVersion = group.Versions[0]
	i.server.DiscoveryGroupManager.AddGroup(group)
	i.server.Handler.GoRestfulContainer.Add(
		discovery.NewAPIGroupHandler(i.server.Serializer, group).WebService())
	return nil
}

// registerKinds lists the resources in the server's registry of equivalent resources. A webhook for
// one version of a kind is called for requests to another version too, whose routes may be the only
// ones that are installed.
func (i *installer) registerKinds(g *genericapiserver.APIGroupInfo, gv schema.GroupVersion) error {
	for name, storage := range g.VersionedResourcesStorageMap[gv.Version] {
		kind, err := genericapi.GetResourceKind(gv, storage, g.Scheme)
		if err != nil {
			return fmt.Errorf("kind of %s: %w", path.Join(gv.String(), name), err)
		}
		resource, subresource, _ := strings.Cut(name, "/")
		i.server.EquivalentResourceRegistry.RegisterKindFor(gv.WithResource(resource), subresource, kind)
	}
	return nil
}

func (i *installer) version(
	g *genericapiserver.APIGroupInfo, gv schema.GroupVersion, root string,
) *genericapi.APIGroupVersion {
	served := map[string][]string{}
	for _, v := range g.PrioritizedVersions {
		for resource := range g.VersionedResourcesStorageMap[v.Version] {
			served[resource] = append(served[resource], v.String())
		}
	}
	return &genericapi.APIGroupVersion{
		GroupVersion:                gv,
		Root:                        root,
		Storage:                     g.VersionedResourcesStorageMap[gv.Version],
		AllServedVersionsByResource: served,
		OptionsExternalVersion:      g.OptionsExternalVersion,
		MetaGroupVersion:            g.MetaGroupVersion,
		Serializer:                  g.NegotiatedSerializer,
		ParameterCodec:              g.ParameterCodec,
		Typer:                       g.Scheme,
		Creater:                     g.Scheme,
		Convertor:                   g.Scheme,
		ConvertabilityChecker:       g.Scheme,
		UnsafeConvertor:             runtime.UnsafeObjectConvertor(g.Scheme),
		Defaulter:                   g.Scheme,
		Namer:                       runtime.Namer(meta.NewAccessor()),
		TypeConverter:               i.types,
		EquivalentResourceRegistry:  i.server.EquivalentResourceRegistry,
		Authorizer:                  i.server.Authorizer,
		Admit:                       i.generic.AdmissionControl,
		MinRequestTimeout:           time.Duration(i.generic.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes:         i.generic.MaxRequestBodyBytes,
	}
}

// typeNames returns the OpenAPI names of the types of all resources of the legacy group, or of all
// resources of the other groups.
func typeNames(
	groups []*genericapiserver.APIGroupInfo, legacy bool,
) (map[schema.GroupVersionKind]string, error) {
	names := map[schema.GroupVersionKind]string{}
	for _, g := range groups {
		if isLegacy(g) != legacy {
			continue
		}
		for _, gv := range g.PrioritizedVersions {
			for resource, storage := range g.VersionedResourcesStorageMap[gv.Version] {
				gvk, err := genericapi.GetResourceKind(gv, storage, g.Scheme)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", path.Join(gv.String(), resource), err)
				}
				obj, err := g.Scheme.New(gvk)
				if err != nil {
					return nil, err
				}
				names[gvk] = openapiutil.GetCanonicalTypeName(obj)
			}
		}
	}
	return names, nil
}
