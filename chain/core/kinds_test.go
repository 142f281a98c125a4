package core_test

import (
	"context"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/diff"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clientrest "k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
	"sigs.k8s.io/randfill"

	corev1 "k8s.io/api/core/v1"

	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/internal/etcdstore"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/embed"
)

// builtins holds all built-in kinds, with storage in the test's own etcd and without a server.
type builtins struct {
	scheme    *runtime.Scheme
	codecs    serializer.CodecFactory
	groups    []kind.Group
	resources kind.Resources
	getter    generic.RESTOptionsGetter
}

func newBuiltins(t *testing.T) *builtins {
	t.Helper()
	// Nothing listens on this port, so rules that look up other objects find none.
	client, err := kubernetes.NewForConfig(&clientrest.Config{Host: "http://127.0.0.1:1", QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	b := &builtins{groups: core.Groups(core.Dependencies{
		Client:        client,
		Authenticator: authenticator.RequestFunc(nil),
		Authorizer:    authorizerfactory.NewAlwaysAllowAuthorizer(),
	})}
	if b.scheme, err = core.Scheme(); err != nil {
		t.Fatal(err)
	}
	b.codecs = serializer.NewCodecFactory(b.scheme)
	e, err := embed.Start(t.Context(), embed.Options{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	backend := etcdstore.New(etcdstore.Config{Client: e.Client(), HistoryKept: time.Hour})
	t.Cleanup(func() {
		backend.Stop()
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if b.getter, err = core.RESTOptions(backend); err != nil {
		t.Fatal(err)
	}
	if b.resources, err = kind.NewResources(b.scheme, b.getter, b.groups...); err != nil {
		t.Fatal(err)
	}
	return b
}

// storeOf returns the registry store of a resource that stores objects, however it is wrapped, or
// nil.
func storeOf(s rest.Storage) *genericregistry.Store {
	v := reflect.Indirect(reflect.ValueOf(s))
	if v.Kind() != reflect.Struct {
		return nil
	}
	for _, name := range []string{"Store", "store"} {
		if f := v.FieldByName(name); f.IsValid() {
			switch f.Type() {
			case reflect.TypeFor[*genericregistry.Store]():
				return (*genericregistry.Store)(f.UnsafePointer())
			case reflect.TypeFor[*kind.Storage]():
				return (*kind.Storage)(f.UnsafePointer()).Store
			}
		}
	}
	return nil
}

// eachKind calls f for every stored kind, in its storage version.
func (b *builtins) eachKind(
	t *testing.T,
	f func(t *testing.T, s *genericregistry.Store, gvr schema.GroupVersionResource, main rest.Storage),
) {
	kinds := 0
	for gv, resources := range b.resources {
		for path, s := range resources {
			store := storeOf(s)
			if store == nil || strings.Contains(path, "/") {
				continue
			}
			hub := b.hub(t, store.New())
			if hub.GroupVersion() != gv {
				continue
			}
			kinds++
			t.Run(path+"."+gv.String(), func(t *testing.T) {
				t.Parallel()
				f(t, store, gv.WithResource(path), s)
			})
		}
	}
	if kinds < 66 {
		t.Errorf("only %d kinds were found", kinds)
	}
}

// hub returns the kind of obj in its hub version.
func (b *builtins) hub(t *testing.T, obj runtime.Object) schema.GroupVersionKind {
	t.Helper()
	kinds, _, err := b.scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, gvk := range kinds {
		if gvk.Version != runtime.APIVersionInternal {
			return gvk
		}
	}
	t.Fatalf("%T has no external version", obj)
	return schema.GroupVersionKind{}
}

// filler returns a filler that sets fields to random values, some of them plausible.
func (b *builtins) filler(seed int64) *randfill.Filler {
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, likely),
		rand.NewSource(seed), b.codecs)
}

// likely returns fuzzer functions that mostly choose plausible values for types of which random
// strings are rarely interesting.
func likely(serializer.CodecFactory) []any {
	one := func(c randfill.Continue, s string, values ...string) string {
		if c.Intn(4) == 0 {
			return s
		}
		return values[c.Intn(len(values))]
	}
	return []any{
		func(s *corev1.Protocol, c randfill.Continue) {
			*s = corev1.Protocol(one(c, c.String(0), "TCP", "UDP", ""))
		},
		func(s *corev1.RestartPolicy, c randfill.Continue) {
			*s = corev1.RestartPolicy(one(c, c.String(0), "Always", "OnFailure", "Never", ""))
		},
		func(s *corev1.ServiceType, c randfill.Continue) {
			*s = corev1.ServiceType(one(c, c.String(0), "ClusterIP", "NodePort",
				"LoadBalancer", "ExternalName", ""))
		},
		func(s *corev1.IPFamily, c randfill.Continue) {
			*s = corev1.IPFamily(one(c, c.String(0), "IPv4", "IPv6", ""))
		},
		func(s *corev1.ResourceName, c randfill.Continue) {
			*s = corev1.ResourceName(one(c, c.String(0), "cpu", "memory", "pods",
				"hugepages-2Mi", "example.com/gpu"))
		},
	}
}

// requestContext returns the context of an administrator's request for the resource.
func requestContext(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, verb string,
) context.Context {
	ctx = request.WithNamespace(ctx, namespace)
	ctx = request.WithUser(ctx,
		&user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              verb,
		APIGroup:          gvr.Group,
		APIVersion:        gvr.Version,
		Resource:          gvr.Resource,
		Namespace:         namespace,
	})
}

// fills is the number of random objects per kind: enough to reach most branches, few enough to take
// seconds.
const fills = 100

// TestDefaultsAreAFixedPoint checks, for zero and random objects of every kind, that defaulting
// twice changes nothing more than defaulting once.
func TestDefaultsAreAFixedPoint(t *testing.T) {
	t.Parallel()
	b := newBuiltins(t)
	b.eachKind(t,
		func(t *testing.T, s *genericregistry.Store, _ schema.GroupVersionResource, _ rest.Storage) {
			filler := b.filler(1)
			for i := range fills {
				obj := s.New()
				if i > 0 {
					filler.Fill(obj)
				}
				b.scheme.Default(obj)
				again := obj.DeepCopyObject()
				b.scheme.Default(again)
				if !equality.Semantic.DeepEqual(obj, again) {
					t.Fatalf("defaulting twice differs from defaulting once:\n%s", diff.Diff(obj, again))
				}
			}
		})
}

// TestRulesTakeAnyObject calls everything that a request would call, with objects that no client
// would send on purpose.
func TestRulesTakeAnyObject(t *testing.T) {
	t.Parallel()
	b := newBuiltins(t)
	b.eachKind(t,
		func(t *testing.T, s *genericregistry.Store, gvr schema.GroupVersionResource, _ rest.Storage) {
			filler := b.filler(2)
			old := s.New()
			create := requestContext(t.Context(), gvr, "one", "create")
			update := requestContext(t.Context(), gvr, "one", "update")
			for i := range fills {
				obj := s.New()
				if i > 0 {
					filler.Fill(obj)
				}
				b.scheme.Default(obj)
				fresh := obj.DeepCopyObject()
				s.CreateStrategy.PrepareForCreate(create, fresh)
				if errs := s.CreateStrategy.Validate(create, fresh); len(errs) == 0 {
					s.CreateStrategy.WarningsOnCreate(create, fresh)
				} else {
					_ = errs.ToAggregate().Error()
				}
				s.CreateStrategy.Canonicalize(fresh)
				for _, before := range []runtime.Object{old, obj, fresh} {
					changed := obj.DeepCopyObject()
					s.UpdateStrategy.PrepareForUpdate(update, changed, before)
					if errs := s.UpdateStrategy.ValidateUpdate(update, changed, before); len(errs) == 0 {
						s.UpdateStrategy.WarningsOnUpdate(update, changed, before)
					} else {
						_ = errs.ToAggregate().Error()
					}
					s.UpdateStrategy.Canonicalize(changed)
				}
				if graceful, ok := s.DeleteStrategy.(rest.RESTGracefulDeleteStrategy); ok {
					graceful.CheckGracefulDelete(update, obj.DeepCopyObject(), &metav1.DeleteOptions{})
				}
				if _, _, err := s.PredicateFunc(labels.Everything(), fields.Everything()).
					GetAttrs(obj); err != nil {
					t.Error(err)
				}
				old = obj
			}
		})
}

// TestTablesPrintAnyObject prints zero and random objects of every kind, singly and in a list.
func TestTablesPrintAnyObject(t *testing.T) {
	t.Parallel()
	b := newBuiltins(t)
	b.eachKind(t,
		func(t *testing.T, s *genericregistry.Store, gvr schema.GroupVersionResource, main rest.Storage) {
			filler := b.filler(3)
			ctx := requestContext(t.Context(), gvr, "one", "get")
			var objs []runtime.Object
			for i := range fills {
				obj := s.New()
				if i > 0 {
					filler.Fill(obj)
				}
				b.scheme.Default(obj)
				objs = append(objs, obj)
			}
			list := s.NewList()
			if err := meta.SetList(list, objs); err != nil {
				t.Fatal(err)
			}
			table, err := main.(rest.TableConvertor).ConvertToTable(ctx, list, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(table.Rows) != fills {
				t.Errorf("%d objects were printed as %d rows", fills, len(table.Rows))
			}
			checkTable(t, gvr.Resource, table)
			if table, err = main.(rest.TableConvertor).ConvertToTable(ctx, objs[1], nil); err != nil {
				t.Fatal(err)
			}
			checkTable(t, gvr.Resource, table)
		})
}

func checkTable(t *testing.T, resource string, table *metav1.Table) {
	t.Helper()
	names := map[string]bool{}
	for _, c := range table.ColumnDefinitions {
		if names[c.Name] || c.Name == "" || c.Description == "" ||
			!slices.Contains([]string{"string", "integer", "number", "boolean", "date"}, c.Type) {
			t.Errorf("bad column %+v", c)
		}
		names[c.Name] = true
	}
	for _, row := range table.Rows {
		// An IPAddress's age cell has no column in kube-apiserver either.
		if n := len(row.Cells); n != len(table.ColumnDefinitions) &&
			!(resource == "ipaddresses" && n == 3) {
			t.Fatalf("row has %d cells for %d columns: %v",
				len(row.Cells), len(table.ColumnDefinitions), row.Cells)
		}
		for _, cell := range row.Cells {
			switch cell.(type) {
			case nil, string, bool, int, int32, int64:
			default:
				t.Fatalf("cell of unexpected type %T: %v", cell, cell)
			}
		}
	}
}

// undeclared lists the kinds of k8s.io/api that are not stored or have no resource.
var undeclared = []string{
	"/v1, Kind=PodStatusResult",
	"/v1, Kind=RangeAllocation",
	"authentication.k8s.io/v1, Kind=TokenRequest",
	"autoscaling/v1, Kind=Scale",
	"policy/v1, Kind=Eviction",
	// These were removed, though nothing in k8s.io/api says so.
	"node.k8s.io/v1alpha1, Kind=RuntimeClass",
	"rbac.authorization.k8s.io/v1alpha1, Kind=ClusterRole",
	"rbac.authorization.k8s.io/v1alpha1, Kind=ClusterRoleBinding",
	"rbac.authorization.k8s.io/v1alpha1, Kind=Role",
	"rbac.authorization.k8s.io/v1alpha1, Kind=RoleBinding",
}

// TestEveryKindIsDeclared checks that every type in k8s.io/api that the version of the libraries
// has not removed is declared.
func TestEveryKindIsDeclared(t *testing.T) {
	t.Parallel()
	b := newBuiltins(t)
	libraries := utilversion.MustParse(baseversion.DefaultKubeBinaryVersion)
	served := map[string]bool{}
	for gv, resources := range b.resources {
		for path, s := range resources {
			if !strings.Contains(path, "/") {
				gvk := b.hub(t, s.New())
				gvk.Group, gvk.Version = gv.Group, gv.Version
				served[gvk.String()] = true
			}
		}
	}
	for gvk, typ := range clientscheme.Scheme.AllKnownTypes() {
		if _, ok := typ.FieldByName("ObjectMeta"); !ok || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		if v, ok := reflect.New(typ).Interface().(interface{ APILifecycleRemoved() (int, int) }); ok {
			major, minor := v.APILifecycleRemoved()
			if !libraries.LessThan(utilversion.MajorMinor(uint(major), uint(minor))) {
				continue
			}
		}
		if declared := served[gvk.String()]; declared == slices.Contains(undeclared, gvk.String()) {
			t.Errorf("%s: declared is %t", gvk, declared)
		}
	}
}

// TestStorageVersions compares the storage version of each kind with kube-apiserver's rule: the
// preferred version among those that the previous release also knows.
func TestStorageVersions(t *testing.T) {
	t.Parallel()
	b := newBuiltins(t)
	version := basecompatibility.NewEffectiveVersionFromString(
		baseversion.DefaultKubeBinaryVersion, "", "")
	encoding := serverstorage.NewDefaultResourceEncodingConfigForEffectiveVersion(b.scheme, version)
	b.eachKind(t,
		func(t *testing.T, s *genericregistry.Store, gvr schema.GroupVersionResource, _ rest.Storage) {
			want, err := encoding.BackwardCompatibileStorageEncodingFor(gvr.GroupResource(), s.New())
			if err != nil || want != gvr.GroupVersion() {
				t.Errorf("storage version is %s, want %s, error %v", gvr.GroupVersion(), want, err)
			}
		})
}
