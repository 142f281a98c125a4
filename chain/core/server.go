// Package core is the second server of the chain, the core-like one. It serves the built-in kinds
// of kube-apiserver with the engine in package kind. Each kind is declared in its own file below
// this folder, grouped by API group.
//
// Its names are for package server; see package chain.
package core

import (
	"fmt"
	"slices"
	"sync"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/informers"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/kinproc/kinproc/chain/core/internal/definitions"
	"github.com/kinproc/kinproc/chain/internal/etcdstore"
	"github.com/kinproc/kinproc/chain/internal/openapi"
	"github.com/kinproc/kinproc/chain/kind"
)

// Config holds what the server needs in addition to the configuration shared by all servers of the
// chain.
type Config struct {
	Backend   *etcdstore.Backend
	Informers informers.SharedInformerFactory
	// Groups are the API groups to serve, as returned by [Groups].
	Groups []kind.Group
	// WebServices are served in addition to the groups.
	WebServices []*restful.WebService
}

// Server is the core-like server.
type Server struct {
	*genericapiserver.GenericAPIServer
	// GroupVersions lists the group versions that the server serves.
	GroupVersions []schema.GroupVersion
	// Kinds is the number of kinds that the server serves.
	Kinds int

	scheme    *runtime.Scheme
	groups    []*genericapiserver.APIGroupInfo
	onDemand  *onDemand
	openAPI   *openapicommon.Config
	openAPIV3 *openapicommon.OpenAPIV3Config
}

// Discovery returns a manager that serves the discovery document of manager once the document lists
// the resources of all built-in group versions.
func (s *Server) Discovery(manager aggregated.ResourceManager) aggregated.ResourceManager {
	return discoveryManager{manager, s.onDemand}
}

// StorageReady returns an error that names a resource whose storage cannot serve requests yet.
func (s *Server) StorageReady() error {
	for _, g := range s.groups {
		for version, resources := range g.VersionedResourcesStorageMap {
			for resource, storage := range resources {
				s, ok := storage.(rest.StorageWithReadiness)
				if !ok {
					continue
				}
				if err := s.ReadinessCheck(); err != nil {
					return fmt.Errorf("%s of version %s: %w", resource, version, err)
				}
			}
		}
	}
	return nil
}

// Builder creates a server.
type Builder struct {
	generic genericapiserver.Config
	config  Config

	done   sync.WaitGroup
	scheme *runtime.Scheme
	groups []*genericapiserver.APIGroupInfo
	err    error
}

// Begin begins to create a server with the storage of its kinds. That needs no delegate, and takes
// as long as making the servers behind this one. generic is the server's own copy of the shared
// configuration.
func Begin(generic genericapiserver.Config, config Config) *Builder {
	b := &Builder{generic: generic, config: config}
	b.done.Go(func() {
		if b.scheme, b.err = Scheme(); b.err != nil {
			return
		}
		var options *etcdstore.Resources
		if options, b.err = RESTOptions(config.Backend); b.err != nil {
			return
		}
		b.groups, b.err = kind.APIGroups(b.scheme, options,
			generic.MergedResourceConfig.ResourceEnabled, config.Groups...)
		if b.err == nil {
			b.groups, b.err = removeUnavailable(b.groups, b.scheme,
				generic.EffectiveVersion.EmulationVersion(), generic.MergedResourceConfig)
		}
	})
	return b
}

// Wait waits for what [Begin] has begun.
func (b *Builder) Wait() { b.done.Wait() }

// Finish creates the server, with next as its delegate.
func (b *Builder) Finish(next genericapiserver.DelegationTarget) (*Server, error) {
	if b.Wait(); b.err != nil {
		return nil, fmt.Errorf("core: %w", b.err)
	}
	return newServer(b.scheme, b.groups, b.generic, b.config, next)
}

func newServer(
	scheme *runtime.Scheme, groups []*genericapiserver.APIGroupInfo, generic genericapiserver.Config,
	config Config, next genericapiserver.DelegationTarget,
) (*Server, error) {
	codecs, err := codecFactory()
	if err != nil {
		return nil, err
	}
	options, err := RESTOptions(config.Backend)
	if err != nil {
		return nil, err
	}
	generic.OpenAPIConfig, generic.OpenAPIV3Config = openapi.Configs(definitionNames(scheme),
		definitions.GetOpenAPIDefinitions, definitionsLater)
	generic.SkipOpenAPIInstallation = true // InstallOpenAPI installs the documents
	generic.Serializer = codecs
	generic.RESTOptionsGetter = options

	s, err := generic.Complete(config.Informers).New("core", next)
	if err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	server := &Server{
		GenericAPIServer: s, GroupVersions: kind.GroupVersions(groups), Kinds: kind.Served(groups).Len(),
		scheme: scheme, groups: groups,
		openAPI: generic.OpenAPIConfig, openAPIV3: generic.OpenAPIV3Config,
	}
	for _, service := range config.WebServices {
		s.Handler.GoRestfulContainer.Add(service)
	}
	if server.onDemand, err = install(s, &generic, groups); err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	return server, nil
}

// Scheme returns the scheme of all built-in kinds. The process shares one, which must not be
// changed.
func Scheme() (*runtime.Scheme, error) { return scheme() }

var scheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	return kind.NewScheme(Groups(Dependencies{})...)
})

// codecFactory returns the codecs of all built-in kinds, which the process shares, too.
var codecFactory = sync.OnceValues(func() (serializer.CodecFactory, error) {
	scheme, err := Scheme()
	if err != nil {
		return serializer.CodecFactory{}, err
	}
	return serializer.NewCodecFactory(scheme), nil
})

// IsHub reports whether an object has the type in which the objects of its kind are stored and read
// back, that of the kind's hub version.
func IsHub(example runtime.Object) bool {
	scheme, err := Scheme()
	if err != nil {
		return false
	}
	kinds, _, err := scheme.ObjectKinds(example)
	return err == nil && slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool {
		return k.Version == runtime.APIVersionInternal
	})
}

// RESTOptions returns storage options that keep the built-in kinds where kube-apiserver keeps them,
// as protobuf of the same version.
func RESTOptions(backend *etcdstore.Backend) (*etcdstore.Resources, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	codecs, err := storageCodecs()
	if err != nil {
		return nil, err
	}
	return &etcdstore.Resources{
		Backend: backend,
		CodecOf: func(resource schema.GroupResource, example runtime.Object) (etcdstore.Codec, error) {
			if example == nil {
				return etcdstore.Codec{}, nil
			}
			kinds, _, err := scheme.ObjectKinds(example)
			if err != nil {
				return etcdstore.Codec{}, err
			}
			return codecs[storageVersion(scheme, external(kinds))], nil
		},
		PathOf: func(r schema.GroupResource) string { return r.Resource },
	}, nil
}

// external returns the external one of the kinds of a hub type.
func external(kinds []schema.GroupVersionKind) schema.GroupVersionKind {
	for _, k := range kinds {
		if k.Version != runtime.APIVersionInternal {
			return k
		}
	}
	return kinds[0]
}

// storageCodecs holds the storage codec of each version.
var storageCodecs = sync.OnceValues(func() (map[schema.GroupVersion]etcdstore.Codec, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	factory, err := codecFactory()
	if err != nil {
		return nil, err
	}
	codecs := map[schema.GroupVersion]etcdstore.Codec{}
	for _, hub := range scheme.PrioritizedVersionsAllGroups() {
		codec, versioner, err := serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
			StorageMediaType:  runtime.ContentTypeProtobuf,
			StorageSerializer: factory,
			StorageVersion:    hub,
			MemoryVersion:     schema.GroupVersion{Group: hub.Group, Version: runtime.APIVersionInternal},
			Config:            storagebackend.Config{},
		})
		if err != nil {
			return nil, fmt.Errorf("storage codec of %s: %w", hub, err)
		}
		codecs[hub] = etcdstore.Codec{Codec: withoutKind{codec}, Versioner: versioner}
	}
	return codecs, nil
})

// withoutKind clears the kind of decoded objects, as conversion to an internal version does. If the
// stored type is the in-memory type too, nothing is converted, and the items of a list would keep
// their kinds.
type withoutKind struct{ runtime.Codec }

func (c withoutKind) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := c.Codec.Decode(data, defaults, into)
	if err == nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return obj, gvk, err
}
