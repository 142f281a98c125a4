package aggregator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apihelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/kinproc/kinproc/chain/internal/catchup"
)

var serviceKind = apiregistrationv1.SchemeGroupVersion.WithKind("APIService").GroupKind()

// CatchUp waits until requests for APIServices that are gone are not proxied any more, and
// discovery does not have them.
func (s *Server) CatchUp(ctx context.Context, changes catchup.Changes) error {
	store := s.APIRegistrationInformers.Apiregistration().V1().APIServices().Informer().GetStore()
	if err := changes.WaitStore(ctx, serviceKind, store); err != nil {
		return err
	}
	for _, o := range changes.Of(serviceKind) {
		var before apiregistrationv1.APIService
		if o.After != nil || json.Unmarshal(o.Before, &before) != nil || before.Spec.Service == nil {
			continue
		}
		path := "/apis/" + before.Spec.Group + "/" + before.Spec.Version
		if err := catchup.Poll(ctx, func() (bool, error) {
			code, _ := s.client.Get(ctx, path, "")
			return code == http.StatusNotFound && s.freshness(ctx, &before.Spec) == "", nil
		}); err != nil {
			return fmt.Errorf("proxy of APIService %s: %w", before.Name, cmp.Or(context.Cause(ctx), err))
		}
	}
	return nil
}

// extensionPatience is how long a reset waits for extension API servers. One that does not answer
// is unavailable after half of it.
const extensionPatience = 10 * time.Second

// WaitAvailable waits until the availability of the extension API servers whose APIServices a reset
// has changed is known, and until those that are available can be reached and discovered. Requests
// are not held meanwhile, because the control loop that looks at the servers writes.
func (s *Server) WaitAvailable(ctx context.Context, changes catchup.Changes) error {
	patient, cancel := context.WithTimeout(ctx, extensionPatience)
	defer cancel()
	for _, o := range changes.Of(serviceKind) {
		var after apiregistrationv1.APIService
		if o.After == nil || json.Unmarshal(o.After, &after) != nil || after.Spec.Service == nil {
			continue
		}
		err := catchup.Poll(patient, func() (bool, error) {
			return s.isReachable(patient, after.Name), nil
		})
		if err != nil {
			return context.Cause(ctx) // nil if the server is slow
		}
	}
	return nil
}

// isReachable reports whether requests for an APIService are answered as its availability demands.
func (s *Server) isReachable(ctx context.Context, name string) bool {
	service := s.service(name)
	if service == nil {
		return true // deleted since
	}
	available := apihelper.GetAPIServiceConditionByType(service, apiregistrationv1.Available)
	switch {
	case available == nil:
		return false
	case available.Status != apiregistrationv1.ConditionTrue:
		return true
	}
	code, _ := s.client.Get(ctx, "/apis/"+service.Spec.Group+"/"+service.Spec.Version, "")
	return code != http.StatusServiceUnavailable && s.freshness(ctx, &service.Spec) ==
		apidiscoveryv2.DiscoveryFreshnessCurrent
}

// freshness returns how fresh what the aggregated discovery document says about a version is. It is
// empty if the document does not have the version.
func (s *Server) freshness(
	ctx context.Context, spec *apiregistrationv1.APIServiceSpec,
) apidiscoveryv2.DiscoveryFreshness {
	var all apidiscoveryv2.APIGroupDiscoveryList
	if !s.client.GetJSON(ctx, "/apis", catchup.AggregatedDiscovery, &all) {
		return ""
	}
	for _, g := range all.Items {
		for _, v := range g.Versions {
			if g.Name == spec.Group && v.Version == spec.Version {
				return v.Freshness
			}
		}
	}
	return ""
}

// Proxies reports whether an extension API server answers requests for a path.
func (s *Server) Proxies(path string) bool {
	path, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return false
	}
	group, rest, _ := strings.Cut(path, "/")
	version, _, _ := strings.Cut(rest, "/")
	service := s.service(version + "." + group)
	return service != nil && service.Spec.Service != nil
}
