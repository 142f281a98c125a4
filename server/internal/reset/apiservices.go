package reset

import (
	"bytes"
	"encoding/json"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
)

const apiServicesPath = "apiregistration.k8s.io/apiservices/"

// isAPIService reports whether an object is an APIService, by its key.
func isAPIService(object string) bool { return strings.HasPrefix(object, apiServicesPath) }

// apiServices returns the changes of the APIServices of the snapshot, after those of other objects
// are known.
func (r *reset) apiServices(seen map[string][]byte, others []change) []change {
	prefix := r.Storage.Prefix() + "/"
	touched := sets.New[string]() // the namespaces in which addresses change
	for _, c := range others {
		object := strings.TrimPrefix(c.key, prefix)
		for _, kind := range []string{"services/specs/", "endpointslices/"} {
			if name, ok := strings.CutPrefix(object, kind); ok {
				namespace, _, _ := strings.Cut(name, "/")
				touched.Insert(namespace)
			}
		}
	}
	var changes []change
	for key, wanted := range r.target.Entries {
		object, ok := strings.CutPrefix(key, prefix)
		if !ok || !isAPIService(object) {
			continue
		}
		before := seen[key]
		after := withOwnStatus(before, wanted.Value, touched)
		if !bytes.Equal(before, after) {
			changes = append(changes, change{key: key, before: before, after: after})
		}
	}
	return changes
}

// withOwnStatus returns what a reset stores instead of an APIService of the snapshot. Whether its
// server is available is true of the present and not of the snapshot, so the status is that of
// before, or empty if that may not hold any more: then the server is looked at again.
func withOwnStatus(before, wanted []byte, touched sets.Set[string]) []byte {
	var was, is apiregistrationv1.APIService
	if json.Unmarshal(wanted, &is) != nil || is.Spec.Service == nil {
		return wanted
	}
	switch {
	case before == nil, json.Unmarshal(before, &was) != nil,
		!apiequality.Semantic.DeepEqual(was.Spec, is.Spec), touched.Has(is.Spec.Service.Namespace):
		is.Status = apiregistrationv1.APIServiceStatus{}
	default:
		is.Status = was.Status
		fields := is.ManagedFields
		is.ManagedFields = was.ManagedFields // they tell when the status changed
		if apiequality.Semantic.DeepEqual(was, is) {
			return before
		}
		is.ManagedFields = fields
	}
	codec := aggregatorscheme.Codecs.LegacyCodec(apiregistrationv1.SchemeGroupVersion)
	after, err := runtime.Encode(codec, &is)
	if err != nil {
		return wanted
	}
	return after
}
