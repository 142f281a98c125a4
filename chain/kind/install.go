package kind

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// APIGroups returns what GenericAPIServer.InstallAPIGroups takes for groups. The scheme must come
// from [NewScheme]. Enabled decides which resources are served; if it is nil, those whose version
// is not [GroupVersion.OffByDefault] are.
func APIGroups(
	scheme *runtime.Scheme, options generic.RESTOptionsGetter,
	enabled func(schema.GroupVersionResource) bool, groups ...Group,
) ([]*genericapiserver.APIGroupInfo, error) {
	resources, err := NewResources(scheme, options, groups...)
	if err != nil {
		return nil, err
	}
	if enabled == nil {
		off := map[schema.GroupVersion]bool{}
		for _, g := range groups {
			for _, v := range g.Versions {
				off[schema.GroupVersion{Group: g.Name, Version: v.Version}] = v.OffByDefault
			}
		}
		enabled = func(r schema.GroupVersionResource) bool { return !off[r.GroupVersion()] }
	}
	codecs := serializer.NewCodecFactory(scheme)
	parameters := runtime.NewParameterCodec(scheme)
	var infos []*genericapiserver.APIGroupInfo
	for _, g := range groups {
		info := genericapiserver.NewDefaultAPIGroupInfo(g.Name, scheme, parameters, codecs)
		info.OptionsExternalVersion = &schema.GroupVersion{Version: "v1"}
		info.PrioritizedVersions = nil
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			served := map[string]rest.Storage{}
			for path, s := range resources[gv] {
				if enabled(gv.WithResource(mainResource(path))) {
					served[path] = s
				}
			}
			if len(served) > 0 {
				info.VersionedResourcesStorageMap[gv.Version] = served
				info.PrioritizedVersions = append(info.PrioritizedVersions, gv)
			}
		}
		if len(info.PrioritizedVersions) > 0 {
			infos = append(infos, &info)
		}
	}
	return infos, nil
}

// mainResource returns the resource in a path such as "pods/status".
func mainResource(path string) string {
	resource, _, _ := strings.Cut(path, "/")
	return resource
}

// Served returns the resources that infos serve in some version. Subresources are not included.
func Served(infos []*genericapiserver.APIGroupInfo) sets.Set[schema.GroupResource] {
	served := sets.New[schema.GroupResource]()
	for _, info := range infos {
		for _, resources := range info.VersionedResourcesStorageMap {
			for name := range resources {
				if !strings.Contains(name, "/") {
					served.Insert(schema.GroupResource{Group: info.PrioritizedVersions[0].Group, Resource: name})
				}
			}
		}
	}
	return served
}

// GroupVersions returns the versions that infos serve.
func GroupVersions(infos []*genericapiserver.APIGroupInfo) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, info := range infos {
		gvs = append(gvs, info.PrioritizedVersions...)
	}
	return gvs
}
