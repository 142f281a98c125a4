package core

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	"github.com/kinproc/kinproc/chain/features"
)

// The types of k8s.io/api say in which minor version of Kubernetes each version of a kind came, and
// went.
type (
	introduced interface{ APILifecycleIntroduced() (major, minor int) }
	removed    interface{ APILifecycleRemoved() (major, minor int) }
)

// had reports whether a version of Kubernetes has the version of a kind that obj is of.
func had(obj runtime.Object, v *version.Version) bool {
	at := func(major, minor int) *version.Version {
		return version.MajorMinor(uint(major), uint(minor))
	}
	if i, ok := obj.(introduced); ok && v.LessThan(at(i.APILifecycleIntroduced())) {
		return false
	}
	r, ok := obj.(removed)
	return !ok || v.LessThan(at(r.APILifecycleRemoved()))
}

// removeUnavailable takes from groups what the version of Kubernetes does not have, and returns the
// groups that have something left. What --runtime-config enables by its name is an error, as in
// kube-apiserver, if it came later.
func removeUnavailable(
	groups []*genericapiserver.APIGroupInfo, scheme *runtime.Scheme, v *version.Version,
	enabled serverstorage.APIResourceConfigSource,
) ([]*genericapiserver.APIGroupInfo, error) {
	var left []*genericapiserver.APIGroupInfo
	for _, g := range groups {
		var versions []schema.GroupVersion
		for _, gv := range g.PrioritizedVersions {
			resources := g.VersionedResourcesStorageMap[gv.Version]
			for path, storage := range resources {
				if strings.Contains(path, "/") {
					continue
				}
				ok, err := available(gv, storage, scheme, v)
				if err != nil {
					return nil, err
				}
				if ok {
					continue
				}
				if gvr := gv.WithResource(path); enabled.ResourceExplicitlyEnabled(gvr) {
					return nil, fmt.Errorf("--runtime-config enables %s/%s, which Kubernetes %s does not have",
						gv, path, v)
				}
				remove(resources, path, served(g, path) == 1)
			}
			switch {
			case len(resources) > 0:
				versions = append(versions, gv)
			case enabled.VersionExplicitlyEnabled(gv):
				return nil, fmt.Errorf("--runtime-config enables %s, which Kubernetes %s does not have", gv, v)
			default:
				delete(g.VersionedResourcesStorageMap, gv.Version)
			}
		}
		if g.PrioritizedVersions = versions; len(versions) > 0 {
			left = append(left, g)
		}
	}
	return left, nil
}

func available(
	gv schema.GroupVersion, storage rest.Storage, scheme *runtime.Scheme, v *version.Version,
) (bool, error) {
	gvk, err := genericapi.GetResourceKind(gv, storage, scheme)
	if err != nil {
		return false, err
	}
	example, err := scheme.New(gvk)
	if err != nil {
		return false, err
	}
	return had(example, v), nil
}

// served returns how many versions of a group have a resource. They share its store.
func served(g *genericapiserver.APIGroupInfo, resource string) (versions int) {
	for _, resources := range g.VersionedResourcesStorageMap {
		if resources[resource] != nil {
			versions++
		}
	}
	return versions
}

// remove removes a resource and its subresources from those of a version. If no other version has
// them, it destroys their storage.
func remove(resources map[string]rest.Storage, resource string, destroy bool) {
	for path, storage := range resources {
		if path == resource || strings.HasPrefix(path, resource+"/") {
			if destroy {
				storage.Destroy()
			}
			delete(resources, path)
		}
	}
}

// storageVersion returns the version in which kube-apiserver stores objects of a kind: that of the
// hub, unless an older server with which this one is compatible does not have it. Then it is the
// preferred one of those that such a server has, except for alpha versions.
func storageVersion(scheme *runtime.Scheme, hub schema.GroupVersionKind) schema.GroupVersion {
	preferred := slices.Concat([]schema.GroupVersion{hub.GroupVersion()},
		scheme.PrioritizedVersionsForGroup(hub.Group))
	for i, gv := range preferred {
		example, err := scheme.New(gv.WithKind(hub.Kind))
		alpha := i > 0 && strings.Contains(gv.Version, "alpha")
		if err == nil && !alpha && had(example, features.Compatible()) {
			return gv
		}
	}
	return hub.GroupVersion()
}
