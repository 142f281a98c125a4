package disturb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

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

// touched is the annotation that somebody else changes for a conflict.
const touched = "disturb.kinproc.dev/touched"

// cluster is the administrator's view of the control plane of a run.
type cluster struct {
	dynamic dynamic.Interface
	watches []watch.Interface
	ended   sync.WaitGroup

	mu      sync.Mutex
	deleted map[string]int // by object
}

// openCluster begins to count which objects of some resources are deleted.
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
	c := &cluster{dynamic: client, deleted: map[string]int{}}
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
		if o, ok := e.Object.(*metav1.PartialObjectMetadata); ok && e.Type == watch.Deleted {
			c.mu.Lock()
			c.deleted[key(resource, o)]++
			c.mu.Unlock()
		}
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

// touch changes an object so that it has another resource version.
func (c *cluster) touch(ctx context.Context, o Op) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, touched)
	_, err := c.resource(o.Resource, o.Namespace).Patch(ctx, o.Name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	return err
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

// resources returns what can be listed, and of that what is lost when it is deleted: claims,
// volumes, secrets, stateful sets, and custom resources.
func resources(admin *rest.Config) (all, precious []schema.GroupVersionResource, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(admin)
	if err != nil {
		return nil, nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, nil, err
	}
	for _, l := range lists {
		version, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") ||
				beside(version.Group, r.Name) || version.Group == "flowcontrol.apiserver.k8s.io" {
				continue
			}
			all = append(all, version.WithResource(r.Name))
			if isPrecious(schema.GroupResource{Group: version.Group, Resource: r.Name}) {
				precious = append(precious, version.WithResource(r.Name))
			}
		}
	}
	return all, precious, nil
}

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
