package disturb

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// maxMissing is how many group versions a session remembers that were not found.
const maxMissing = 100

// notFound notes the group version of a path at which the controller has found nothing.
func (s *Session) notFound(path string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 3 || parts[0] != "apis" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing == nil {
		s.missing = map[schema.GroupVersion]bool{}
	}
	if len(s.missing) < maxMissing {
		s.missing[schema.GroupVersion{Group: parts[1], Version: parts[2]}] = true
	}
}

// unserved returns the group versions that the controller has asked for and that are not served.
func (s *Session) unserved(admin *rest.Config) ([]string, error) {
	s.mu.Lock()
	missing := maps.Clone(s.missing)
	s.mu.Unlock()
	if len(missing) == 0 {
		return nil, nil
	}
	client, err := discovery.NewDiscoveryClientForConfig(admin)
	if err != nil {
		return nil, err
	}
	groups, err := client.ServerGroups()
	if err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			delete(missing, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
	}
	var all []string
	for v := range missing {
		all = append(all, v.String())
	}
	slices.Sort(all)
	return all, nil
}
