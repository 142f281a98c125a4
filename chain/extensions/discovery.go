package extensions

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

// discovery knows what the discovery documents say about custom resources.
type discovery struct {
	crds crdinformers.CustomResourceDefinitionInformer

	mu sync.Mutex
	// groups has the lines of describe, by group and version.
	groups   map[string]map[string]sets.Set[string]
	expected map[string]string // the last revisions of CRDs that clients have written, by name
	// changed is closed when the documents or the informer have changed.
	changed chan struct{}
}

func newDiscovery() *discovery {
	return &discovery{
		groups:   map[string]map[string]sets.Set[string]{},
		expected: map[string]string{},
		changed:  make(chan struct{}),
	}
}

// follow makes the informer of CRDs known, which begins after the server has been made.
func (d *discovery) follow(crds crdinformers.CustomResourceDefinitionInformer) error {
	d.crds = crds
	signal := func() { d.change(func() {}) }
	_, err := crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(any, any) { signal() },
		DeleteFunc: func(any) { signal() },
	})
	return err
}

func (d *discovery) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.changed)
	d.changed = make(chan struct{})
}

// wait returns when a condition of the documents and the informer holds.
func (d *discovery) wait(ctx context.Context, done func() bool) error {
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// has reports whether the documents say of a group what its CRDs in the informer serve.
func (d *discovery) has(group string) bool {
	all, err := d.crds.Lister().List(labels.Everything())
	if err != nil {
		return false // cannot happen: the lister reads from memory
	}
	want := map[string]sets.Set[string]{}
	for _, crd := range all {
		if crd.Spec.Group == group &&
			apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			describe(crd, want)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.EqualFunc(d.groups[group], want, sets.Set[string].Equal)
}

// describe adds what discovery says about the versions of a CRD.
func describe(d *apiextensionsv1.CustomResourceDefinition, to map[string]sets.Set[string]) {
	names, namespaced := d.Status.AcceptedNames, d.Spec.Scope == apiextensionsv1.NamespaceScoped
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		lines := to[v.Name]
		if lines == nil {
			lines = sets.New[string]()
			to[v.Name] = lines
		}
		lines.Insert(describeResource(names.Plural, names.Kind, names.Singular, namespaced,
			names.ShortNames, names.Categories))
		if v.Subresources != nil && v.Subresources.Status != nil {
			lines.Insert(
				describeResource(names.Plural+"/status", names.Kind, "", namespaced, nil, nil))
		}
		if v.Subresources != nil && v.Subresources.Scale != nil {
			lines.Insert(describeResource(names.Plural+"/scale", "Scale", "", namespaced, nil, nil))
		}
	}
}

func describeResource(
	name, kind, singular string, namespaced bool, short, categories []string,
) string {
	return fmt.Sprint(name, " ", kind, " ", singular, " ", namespaced, " ", short, " ", categories)
}

// discoveryWriter writes the aggregated discovery document. The controller of
// apiextensions-apiserver tells it about custom resources when it has changed the documents of
// single versions.
type discoveryWriter struct {
	aggregated.ResourceManager
	discovery *discovery
	custom    bool
}

func (w discoveryWriter) WithSource(source aggregated.Source) aggregated.ResourceManager {
	return discoveryWriter{
		ResourceManager: w.ResourceManager.WithSource(source), discovery: w.discovery,
		custom: source == aggregated.CRDSource,
	}
}

func (w discoveryWriter) AddGroupVersion(group string, version apidiscoveryv2.APIVersionDiscovery) {
	w.ResourceManager.AddGroupVersion(group, version)
	if !w.custom {
		return
	}
	got := sets.New[string]()
	for _, r := range version.Resources {
		namespaced := r.Scope == apidiscoveryv2.ScopeNamespace
		got.Insert(describeResource(r.Resource, kindIn(r.ResponseKind), r.SingularResource,
			namespaced, r.ShortNames, r.Categories))
		for _, s := range r.Subresources {
			got.Insert(describeResource(r.Resource+"/"+s.Subresource, kindIn(s.ResponseKind), "",
				namespaced, nil, nil))
		}
	}
	w.discovery.change(func() {
		if w.discovery.groups[group] == nil {
			w.discovery.groups[group] = map[string]sets.Set[string]{}
		}
		w.discovery.groups[group][version.Version] = got
	})
}

func (w discoveryWriter) RemoveGroupVersion(gv metav1.GroupVersion) {
	w.ResourceManager.RemoveGroupVersion(gv)
	if w.custom {
		w.discovery.change(func() { delete(w.discovery.groups[gv.Group], gv.Version) })
	}
}

func (w discoveryWriter) RemoveGroup(group string) {
	w.ResourceManager.RemoveGroup(group)
	if w.custom {
		w.discovery.change(func() { delete(w.discovery.groups, group) })
	}
}

func kindIn(gvk *metav1.GroupVersionKind) string {
	if gvk == nil {
		return ""
	}
	return gvk.Kind
}

// definitionStore is the store of CRDs. Clients that read a CRD that another client has just
// written see what the controllers have made of it.
type definitionStore struct {
	apistorage.Interface
	discovery *discovery
}

func (s definitionStore) Create(
	ctx context.Context, key string, obj, out runtime.Object, ttl uint64,
) error {
	err := s.Interface.Create(ctx, key, obj, out, ttl)
	if err == nil {
		s.discovery.expect(ctx, out)
	}
	return err
}

func (s definitionStore) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, existing runtime.Object,
) error {
	err := s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update,
		existing)
	if err == nil {
		s.discovery.expect(ctx, out)
	}
	return err
}

func (s definitionStore) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, existing runtime.Object, opts apistorage.DeleteOptions,
) error {
	s.discovery.forget(path.Base(key), "")
	return s.Interface.Delete(ctx, key, out, preconditions, validate, existing, opts)
}

func (s definitionStore) Get(
	ctx context.Context, key string, opts apistorage.GetOptions, out runtime.Object,
) error {
	s.discovery.await(ctx, path.Base(key))
	return s.Interface.Get(ctx, key, opts, out)
}

func (s definitionStore) GetList(
	ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object,
) error {
	s.discovery.await(ctx, "")
	return s.Interface.GetList(ctx, key, opts, list)
}

// isClient reports whether a request is not one of the server's own, such as of a controller.
func isClient(ctx context.Context) bool {
	who, _ := genericapirequest.UserFrom(ctx)
	return who != nil && who.GetName() != user.APIServerUser
}

// expect notes that a client has written a CRD.
func (d *discovery) expect(ctx context.Context, written runtime.Object) {
	crd, ok := written.(*apiextensions.CustomResourceDefinition)
	if !ok || !isClient(ctx) {
		return
	}
	if crd.DeletionTimestamp != nil {
		d.forget(crd.Name, "")
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.expected[crd.Name]
	order, err := resourceversion.CompareResourceVersion(crd.ResourceVersion, before)
	if before == "" || err == nil && order > 0 {
		d.expected[crd.Name] = crd.ResourceVersion
	}
}

// forget undoes expect, for a revision or, if that is empty, for all.
func (d *discovery) forget(name, revision string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if revision == "" || d.expected[name] == revision {
		delete(d.expected, name)
	}
}

// definitionTimeout limits how long a request waits for the controllers, which do not run while the
// server starts or stops, or for the informer. It is long enough for a busy machine.
const definitionTimeout = 10 * time.Second

// Await waits until what clients have written in CRDs is in the discovery documents of versions, in
// the aggregated one, and in OpenAPI v3. Without Await, a client that looks for a kind some
// milliseconds after its CRD might not find the kind. OpenAPI v2 and the lists of groups in the old
// format, which the aggregator makes of its APIServices, are not awaited.
func (s *Server) Await(ctx context.Context) { s.discovery.await(ctx, "") }

// await waits until the controllers have done what follows from the last write of the CRD of a
// name, or of all CRDs.
func (d *discovery) await(ctx context.Context, name string) {
	if !isClient(ctx) || !d.crds.Informer().HasSynced() {
		return
	}
	expected := d.expectedOf(name)
	if len(expected) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	err := d.wait(limited, func() bool {
		described := map[string]bool{} // groups
		for name, revision := range expected {
			seen, err := d.crds.Lister().Get(name)
			if err != nil || !settled(seen, revision) {
				continue
			}
			group := seen.Spec.Group
			if _, ok := described[group]; !ok {
				described[group] = d.has(group)
			}
			if described[group] {
				d.forget(name, revision)
				delete(expected, name)
			}
		}
		return len(expected) == 0
	})
	if err == nil || ctx.Err() != nil {
		return
	}
	for name, revision := range expected { // deleted since, or the controllers do not run
		d.forget(name, revision)
	}
}

// expectedOf returns what is expected of the CRD of a name, or of all CRDs.
func (d *discovery) expectedOf(name string) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name == "" {
		return maps.Clone(d.expected)
	}
	if revision, ok := d.expected[name]; ok {
		return map[string]string{name: revision}
	}
	return nil
}

// settled reports whether a CRD in the informer has what the controllers make of the write of a
// revision: its names are accepted or refused, and it is established if they are accepted.
func settled(seen *apiextensionsv1.CustomResourceDefinition, revision string) bool {
	order, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, revision)
	if err != nil || order < 0 || installing(seen) {
		return false
	}
	accepted := apiequality.Semantic.DeepEqual(seen.Spec.Names, seen.Status.AcceptedNames)
	return accepted || refused(seen)
}

// refused reports whether names that a CRD asks for now are refused. The condition may be older
// than the names.
func refused(d *apiextensionsv1.CustomResourceDefinition) bool {
	condition := apihelpers.FindCRDCondition(d, apiextensionsv1.NamesAccepted)
	if condition == nil || condition.Status != apiextensionsv1.ConditionFalse {
		return false
	}
	n := d.Spec.Names
	names := append([]string{n.Plural, n.Singular, n.Kind, n.ListKind}, n.ShortNames...)
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(condition.Message, strconv.Quote(name))
	})
}

// installing reports whether a controller will decide about the names of a CRD or establish it.
func installing(d *apiextensionsv1.CustomResourceDefinition) bool {
	established := apihelpers.FindCRDCondition(d, apiextensionsv1.Established)
	return established == nil ||
		established.Status != apiextensionsv1.ConditionTrue && established.Reason == "Installing"
}
