package core

import (
	"fmt"
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

// came reports whether the version of a kind that obj is of is in a version of Kubernetes or in an
// earlier one.
func came(obj runtime.Object, v *version.Version) bool {
	i, ok := obj.(introduced)
	return !ok || v.AtLeast(minor(i.APILifecycleIntroduced()))
}

// went reports whether that version of the kind has been removed.
func went(obj runtime.Object, v *version.Version) bool {
	r, ok := obj.(removed)
	return ok && v.AtLeast(minor(r.APILifecycleRemoved()))
}

func minor(major, minor int) *version.Version {
	return version.MajorMinor(uint(major), uint(minor))
}

// removeUnavailable takes from groups what a version of Kubernetes does not have, and returns the
// groups that have something left. As in kube-apiserver, it is an error if --runtime-config enables
// by its name what came later.
func removeUnavailable(
	groups []*genericapiserver.APIGroupInfo, scheme *runtime.Scheme, v *version.Version,
	enabled serverstorage.APIResourceConfigSource,
) ([]*genericapiserver.APIGroupInfo, error) {
	var left []*genericapiserver.APIGroupInfo
	for _, g := range groups {
		var versions []schema.GroupVersion
		for _, gv := range g.PrioritizedVersions {
			resources := g.VersionedResourcesStorageMap[gv.Version]
			late, err := removeFrom(g, gv, scheme, v)
			if err != nil {
				return nil, err
			}
			for _, resource := range late {
				if enabled.ResourceExplicitlyEnabled(gv.WithResource(resource)) ||
					len(resources) == 0 && enabled.VersionExplicitlyEnabled(gv) {
					return nil, fmt.Errorf("--runtime-config enables %s/%s, which came after Kubernetes %s",
						gv, resource, v)
				}
			}
			if len(resources) > 0 {
				versions = append(versions, gv)
			} else {
				delete(g.VersionedResourcesStorageMap, gv.Version)
			}
		}
		if g.PrioritizedVersions = versions; len(versions) > 0 {
			left = append(left, g)
		}
	}
	return left, nil
}

// removeFrom removes what a version of Kubernetes does not have from the resources of a group
// version. It returns those that came later.
func removeFrom(
	g *genericapiserver.APIGroupInfo, gv schema.GroupVersion, scheme *runtime.Scheme,
	v *version.Version,
) (late []string, err error) {
	resources := g.VersionedResourcesStorageMap[gv.Version]
	for path, storage := range resources {
		if strings.Contains(path, "/") {
			continue
		}
		gvk, err := genericapi.GetResourceKind(gv, storage, scheme)
		if err != nil {
			return nil, err
		}
		example, err := scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		if !came(example, v) {
			late = append(late, path)
		} else if !went(example, v) {
			continue
		}
		remove(resources, path, served(g, path) == 1)
	}
	return late, nil
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
	has := func(gv schema.GroupVersion) bool {
		example, err := scheme.New(gv.WithKind(hub.Kind))
		return err == nil && came(example, features.Compatible())
	}
	if has(hub.GroupVersion()) {
		return hub.GroupVersion()
	}
	for _, gv := range scheme.PrioritizedVersionsForGroup(hub.Group) {
		if !strings.Contains(gv.Version, "alpha") && has(gv) {
			return gv
		}
	}
	return hub.GroupVersion()
}
