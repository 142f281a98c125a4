package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apihelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
)

const apiServicesPath = "apiregistration.k8s.io/apiservices/"

// isAPIService reports whether an object is an APIService, by its key.
func isAPIService(object string) bool { return strings.HasPrefix(object, apiServicesPath) }

// apiServices returns the changes of the APIServices of the snapshot, after those of other objects
// are known.
func (r *reset) apiServices(seen map[string][]byte, others []change) []change {
	prefix := r.plane.storage.Prefix() + "/"
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

// extensionPatience is how long a reset waits for extension API servers. One that does not answer
// is unavailable after half of it.
const extensionPatience = 10 * time.Second

// waitAvailable waits until the availability of the extension API servers whose APIServices a reset
// has changed is known, and until those that are available can be reached and discovered. Requests
// are not held meanwhile, because the control loop that looks at the servers writes.
func (p *plane) waitAvailable(ctx context.Context, objects []changed) error {
	patient, cancel := context.WithTimeout(ctx, extensionPatience)
	defer cancel()
	for _, o := range objects {
		var after apiregistrationv1.APIService
		if o.GroupKind != apiServiceKind || o.after == nil || json.Unmarshal(o.after, &after) != nil ||
			after.Spec.Service == nil {
			continue
		}
		err := poll(patient, func() (bool, error) { return p.isReachable(patient, after.Name), nil })
		if err != nil {
			return context.Cause(ctx) // nil if the server is slow
		}
	}
	return nil
}

// isReachable reports whether requests for an APIService are answered as its availability demands.
func (p *plane) isReachable(ctx context.Context, name string) bool {
	service, err := p.chain.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().
		Lister().Get(name)
	if err != nil {
		return true // deleted since
	}
	available := apihelper.GetAPIServiceConditionByType(service, apiregistrationv1.Available)
	switch {
	case available == nil:
		return false
	case available.Status != apiregistrationv1.ConditionTrue:
		return true
	}
	code, _ := p.requests.Ask(ctx, "/apis/"+service.Spec.Group+"/"+service.Spec.Version, "")
	return code != http.StatusServiceUnavailable && p.freshness(ctx, &service.Spec) ==
		apidiscoveryv2.DiscoveryFreshnessCurrent
}

// freshness returns how fresh what the aggregated discovery document says about a version is. It is
// empty if the document does not have the version.
func (p *plane) freshness(
	ctx context.Context, s *apiregistrationv1.APIServiceSpec,
) apidiscoveryv2.DiscoveryFreshness {
	var all apidiscoveryv2.APIGroupDiscoveryList
	if !p.requests.AskJSON(ctx, "/apis", aggregatedDiscovery, &all) {
		return ""
	}
	for _, g := range all.Items {
		for _, v := range g.Versions {
			if g.Name == s.Group && v.Version == s.Version {
				return v.Freshness
			}
		}
	}
	return ""
}

// waitProxies waits until requests for APIServices that are gone are not proxied any more, and
// discovery does not have them.
func (c *caches) waitProxies(ctx context.Context, objects []changed) error {
	for _, o := range objects {
		var before apiregistrationv1.APIService
		if o.GroupKind != apiServiceKind || o.after != nil || json.Unmarshal(o.before, &before) != nil ||
			before.Spec.Service == nil {
			continue
		}
		path := "/apis/" + before.Spec.Group + "/" + before.Spec.Version
		if err := poll(ctx, func() (bool, error) {
			code, _ := c.plane.requests.Ask(ctx, path, "")
			return code == http.StatusNotFound && c.plane.freshness(ctx, &before.Spec) == "", nil
		}); err != nil {
			return fmt.Errorf("proxy of APIService %s: %w", before.Name, cmp.Or(context.Cause(ctx), err))
		}
	}
	return nil
}

// isProxied reports whether an extension API server answers requests for a path.
func (p *plane) isProxied(path string) bool {
	path, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return false
	}
	group, rest, _ := strings.Cut(path, "/")
	version, _, _ := strings.Cut(rest, "/")
	service, err := p.chain.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().
		Lister().Get(version + "." + group)
	return err == nil && service.Spec.Service != nil
}
