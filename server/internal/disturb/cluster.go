package disturb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// touched is the label and the annotation that somebody else sets right before a write.
const touched = "disturb.kinproc.dev/touched"

// cluster is the administrator's view of the control plane of a run.
type cluster struct {
	dynamic  dynamic.Interface
	metadata metadata.Interface
	watches  []watch.Interface
	ended    sync.WaitGroup

	mu           sync.Mutex
	counts       counts
	lastDeletion map[schema.GroupResource]uint64 // the revision
}

// counts are how often objects were created and deleted.
type counts map[string]count

type count struct{ created, deleted int }

func minimum(a, b count) count { return count{min(a.created, b.created), min(a.deleted, b.deleted)} }
func maximum(a, b count) count { return count{max(a.created, b.created), max(a.deleted, b.deleted)} }

// merge combines the counts of each object.
func (c counts) merge(other counts, combine func(count, count) count) counts {
	all := counts{}
	for k := range union(c, other) {
		all[k] = combine(c[k], other[k])
	}
	return all
}

// openCluster begins to count how often objects of some resources are created and deleted.
func openCluster(
	ctx context.Context, admin *rest.Config, counted []schema.GroupVersionResource,
) (*cluster, error) {
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		dynamic: client, metadata: metadataClient, counts: counts{},
		lastDeletion: map[schema.GroupResource]uint64{},
	}
	for _, resource := range counted {
		w, err := metadataClient.Resource(resource).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			c.close()
			return nil, fmt.Errorf("watch %s: %w", resource.GroupResource(), err)
		}
		c.watches = append(c.watches, w)
		c.ended.Go(func() { c.count(resource.GroupResource(), w) })
	}
	return c, nil
}

func (c *cluster) close() {
	for _, w := range c.watches {
		w.Stop()
	}
	c.ended.Wait()
}

func (c *cluster) count(resource schema.GroupResource, w watch.Interface) {
	for e := range w.ResultChan() {
		o, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			continue
		}
		c.mu.Lock()
		k := key(resource, o)
		n := c.counts[k]
		switch e.Type {
		case watch.Added:
			n.created++
		case watch.Deleted:
			n.deleted++
			if version, err := strconv.ParseUint(o.ResourceVersion, 10, 64); err == nil {
				c.lastDeletion[resource] = version
			}
		}
		c.counts[k] = n
		c.mu.Unlock()
	}
}

// key names an object in a state.
func key(resource schema.GroupResource, o metav1.Object) string {
	name := o.GetName()
	if prefix := o.GetGenerateName(); prefix != "" && strings.HasPrefix(name, prefix) {
		name = prefix + "*"
	}
	return resource.String() + " " + join("/", o.GetNamespace(), canonical(name))
}

// revision returns the present revision of the storage.
func (c *cluster) revision(ctx context.Context) (string, error) {
	list, err := c.dynamic.Resource(namespaces).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.GetResourceVersion(), nil
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// touch changes an object so that it has another resource version, and reports whether there is an
// object.
func (c *cluster) touch(ctx context.Context, o call) (exists bool, err error) {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"},"annotations":{%[1]q:"true"}}}`, touched)
	_, err = c.resource(o.Resource, o.Namespace).Patch(ctx, o.name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// lost returns the kinds of metadata of which an object no longer has what touch has set.
func (c *cluster) lost(ctx context.Context, o call) ([]string, error) {
	object, err := c.resource(o.Resource, o.Namespace).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var lost []string
	if object.GetLabels()[touched] == "" {
		lost = append(lost, "label")
	}
	if object.GetAnnotations()[touched] == "" {
		lost = append(lost, "annotation")
	}
	return lost, nil
}

func (c *cluster) resource(
	resource schema.GroupVersionResource, namespace string,
) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic.Resource(resource)
	}
	return c.dynamic.Resource(resource).Namespace(namespace)
}

// read returns the state of some resources.
func (c *cluster) read(
	ctx context.Context, resources []schema.GroupVersionResource,
	mask func(*unstructured.Unstructured),
) (State, error) {
	objects := map[schema.GroupResource][]*unstructured.Unstructured{}
	for _, r := range resources {
		list, err := c.dynamic.Resource(r).List(ctx, metav1.ListOptions{
			LabelSelector: "!kubernetes.io/bootstrapping,!kube-aggregator.kubernetes.io/automanaged",
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.GroupResource(), err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if mask != nil {
				mask(o)
			}
			objects[r.GroupResource()] = append(objects[r.GroupResource()], o)
		}
	}
	return newState(objects), nil
}

// beforeLastChange returns the revision before the last change of a resource.
func (c *cluster) beforeLastChange(
	ctx context.Context, resource schema.GroupVersionResource,
) (string, error) {
	list, err := c.metadata.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	last := c.lastDeletion[resource.GroupResource()]
	c.mu.Unlock()
	for _, o := range list.Items {
		version, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
		if err != nil {
			return "", err
		}
		last = max(last, version)
	}
	if last == 0 {
		return list.ResourceVersion, nil // nothing has changed
	}
	return strconv.FormatUint(last-1, 10), nil
}

// resources returns what can be listed.
func resources(admin *rest.Config) (all []schema.GroupVersionResource, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(admin)
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	for _, l := range lists {
		version, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") ||
				beside(version.Group, r.Name) || version.Group == "flowcontrol.apiserver.k8s.io" {
				continue
			}
			all = append(all, version.WithResource(r.Name))
		}
	}
	return all, nil
}

// isPrecious reports whether something is lost when an object is deleted, even if it is created
// again: a claim, a volume, a secret, a stateful set, a namespace, or a custom resource.
func isPrecious(r schema.GroupResource) bool {
	switch r.String() {
	case "persistentvolumeclaims", "persistentvolumes", "secrets", "statefulsets.apps", "namespaces":
		return true
	}
	// The groups of Kubernetes itself have no dot, or end so.
	return strings.Contains(r.Group, ".") && !strings.HasSuffix(r.Group, ".k8s.io")
}

// uids returns the keys of objects by UID.
func uids(objects map[schema.GroupResource][]*unstructured.Unstructured) map[string]string {
	all := map[string]string{}
	for resource, list := range objects {
		for _, o := range list {
			all[string(o.GetUID())] = key(resource, o)
		}
	}
	return all
}
