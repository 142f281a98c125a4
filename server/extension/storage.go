package extension

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kinproc/kinproc/server/extension/internal/records"
)

// Storage is where a server stores objects: [Memory], [Files], [Etcd], [Records] or [Custom]. The
// zero value is Memory.
type Storage struct {
	make     func(codecs codecs) (*openStorage, error)
	problems []error
}

// openStorage is the storage of a server.
type openStorage struct {
	generic.RESTOptionsGetter
	checks []healthz.HealthChecker
	// close is called once, after the stores of the kinds have been destroyed.
	close func() error
}

func (s Storage) open(scheme *runtime.Scheme) (*openStorage, error) {
	if s.make == nil {
		s = Memory()
	}
	opened, err := s.make(codecs{scheme, serializer.NewCodecFactory(scheme)})
	if err == nil && opened.close == nil {
		opened.close = func() error { return nil }
	}
	return opened, err
}

// codecs returns codecs for the storage, which encode a kind in its hub version.
type codecs struct {
	scheme  *runtime.Scheme
	factory serializer.CodecFactory
}

// of returns the codec for objects of example's kind.
func (c codecs) of(example runtime.Object) (runtime.Codec, error) {
	kinds, _, err := c.scheme.ObjectKinds(example)
	if err != nil {
		return nil, err
	}
	for _, gvk := range kinds {
		if gvk.Version != runtime.APIVersionInternal {
			return c.factory.LegacyCodec(gvk.GroupVersion()), nil
		}
	}
	return nil, fmt.Errorf("%T has no external version", example)
}

// Memory stores objects in memory. They are gone when the server stops.
func Memory() Storage { return Records(forgetful{}) }

// forgetful keeps nothing.
type forgetful struct{}

func (forgetful) Load(context.Context, string, func(string, []byte) error) error { return nil }
func (forgetful) Put(context.Context, string, []byte) error                      { return nil }
func (forgetful) Delete(context.Context, string) error                           { return nil }

// Persistence keeps the objects of a server in a database or the like, under string keys such as
// "/chat.example.com/rooms/default/lobby". The server loads all objects of a resource when it
// starts, and serves reads and watches from memory. It must be the only one that writes them.
//
// The server calls Put and Delete for one key at a time. When they return nil, the change must be
// durable; when they return an error, it must not have happened.
type Persistence interface {
	// Load calls each for all keys that begin with prefix, in any order.
	Load(ctx context.Context, prefix string, each func(key string, value []byte) error) error
	// Put stores a value, JSON, under a new or an existing key.
	Put(ctx context.Context, key string, value []byte) error
	// Delete removes a key.
	Delete(ctx context.Context, key string) error
}

// Records stores objects by means of p. If p has a method Close() error, it is called when the
// server has stopped.
func Records(p Persistence) Storage {
	if p == nil {
		return Storage{problems: []error{errors.New("Storage: Records(nil) stores nothing")}}
	}
	return Storage{make: func(c codecs) (*openStorage, error) {
		s := &openStorage{RESTOptionsGetter: records.Getter{Persistence: p, Codec: c.of}}
		if closer, ok := p.(interface{ Close() error }); ok {
			s.close = closer.Close
		}
		return s, nil
	}}
}

// Files stores each object in a JSON file below dir, such as
// dir/chat.example.com/rooms/default/lobby.json. A write is durable before it is acknowledged. A
// file that cannot be read keeps the server from starting. One server at a time can use a
// directory.
func Files(dir string) Storage {
	if dir == "" {
		return Storage{problems: []error{errors.New("Storage: Files needs the name of a directory")}}
	}
	return Storage{make: func(c codecs) (*openStorage, error) {
		files, err := records.OpenFiles(dir)
		if err != nil {
			return nil, err
		}
		return &openStorage{
			RESTOptionsGetter: records.Getter{Persistence: files, Codec: c.of},
			close:             files.Close,
		}, nil
	}}
}

// EtcdOptions are an etcd cluster and a place in it.
type EtcdOptions struct {
	// Endpoints are the URLs of the members, such as https://10.0.0.5:2379.
	Endpoints []string
	// Prefix is what all keys begin with, such as "/chat". It keeps servers apart that share a
	// cluster; a control plane uses "/registry". It is required.
	Prefix string
	// CertFile, KeyFile and CAFile are for TLS: the client certificate, its key, and the authority
	// that signed the certificates of the members.
	CertFile, KeyFile, CAFile string
}

// Etcd stores objects in etcd. Several servers with the same prefix serve the same objects.
func Etcd(o EtcdOptions) Storage {
	var problems []error
	if len(o.Endpoints) == 0 {
		problems = append(problems, errors.New("Storage: Etcd needs at least one endpoint"))
	}
	switch prefix := strings.Trim(o.Prefix, "/"); {
	case prefix == "":
		problems = append(problems, errors.New("Storage: Etcd needs a prefix, such as /chat"))
	case prefix == "registry" || strings.HasPrefix(prefix, "registry/"):
		problems = append(problems, fmt.Errorf(
			"Storage: the prefix %q is the control plane's own: name another", o.Prefix))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		problems = append(problems, errors.New(
			"Storage: CertFile and KeyFile of Etcd go together: set both or neither"))
	}
	return Storage{problems: problems, make: func(c codecs) (*openStorage, error) {
		config := storagebackend.NewDefaultConfig("/"+strings.Trim(o.Prefix, "/"), nil)
		config.Transport = storagebackend.TransportConfig{
			ServerList: o.Endpoints, CertFile: o.CertFile, KeyFile: o.KeyFile, TrustedCAFile: o.CAFile,
		}
		return openEtcd(*config, c)
	}}
}

// Custom stores objects where options say.
func Custom(options generic.RESTOptionsGetter) Storage {
	if options == nil {
		return Storage{problems: []error{errors.New("Storage: Custom(nil) stores nothing")}}
	}
	return Storage{make: func(codecs) (*openStorage, error) {
		return &openStorage{RESTOptionsGetter: options}, nil
	}}
}

// etcdGetter returns the options of resources in etcd.
type etcdGetter struct {
	config storagebackend.Config
	codecs codecs
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g etcdGetter) GetRESTOptions(
	resource schema.GroupResource, example runtime.Object,
) (generic.RESTOptions, error) {
	config := g.config
	var err error
	if config.Codec, err = g.codecs.of(example); err != nil {
		return generic.RESTOptions{}, err
	}
	return generic.RESTOptions{
		StorageConfig:             config.ForResource(resource),
		Decorator:                 genericregistry.StorageWithCacher(),
		EnableGarbageCollection:   true,
		DeleteCollectionWorkers:   1,
		ResourcePrefix:            resource.Group + "/" + resource.Resource,
		CountMetricPollPeriod:     config.CountMetricPollPeriod,
		StorageObjectCountTracker: config.StorageObjectCountTracker,
	}, nil
}
