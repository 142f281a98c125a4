package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind that the control plane serves.
type kind struct {
	Group      string `json:"group"`
	Version    string `json:"version"`
	Resource   string `json:"resource"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
	Watchable  bool   `json:"watchable"`
	// Verbs are what the page offers to do: update, patch, delete, and scale.
	Verbs []string `json:"verbs,omitempty"`
	Short []string `json:"short,omitempty"` // other names
}

func (k kind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// kinds returns the kinds that can be listed, each in the version that the control plane prefers.
func (s *Server) kinds(ctx context.Context) ([]kind, error) {
	lists, err := s.discovery.ServerPreferredResourcesWithContext(ctx)
	if len(lists) == 0 && err != nil {
		return nil, err // otherwise only some group is unavailable, as its APIService shows
	}
	// The preferred resources do not include subresources.
	_, everything, err := s.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if len(everything) == 0 && err != nil {
		return nil, err
	}
	scaled := map[string]bool{}
	for _, list := range everything {
		for _, r := range list.APIResources {
			if name, ok := strings.CutSuffix(r.Name, "/scale"); ok {
				scaled[list.GroupVersion+" "+name] = true
			}
		}
	}
	var kinds []kind
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // an extension API server said it
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.Contains(r.Name, "/") {
				continue
			}
			k := kind{
				Group: version.Group, Version: version.Version, Resource: r.Name, Kind: r.Kind,
				Namespaced: r.Namespaced, Watchable: slices.Contains(r.Verbs, "watch"),
				Short: r.ShortNames,
			}
			for _, verb := range []string{"update", "patch", "delete"} {
				if slices.Contains(r.Verbs, verb) {
					k.Verbs = append(k.Verbs, verb)
				}
			}
			if scaled[list.GroupVersion+" "+r.Name] {
				k.Verbs = append(k.Verbs, "scale")
			}
			kinds = append(kinds, k)
		}
	}
	slices.SortFunc(kinds, func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return kinds, nil
}

// serveKinds returns the kinds.
func (s *Server) serveKinds(w http.ResponseWriter, r *http.Request) {
	kinds, err := s.kinds(r.Context())
	if err != nil {
		refuse(w, http.StatusBadGateway, "The kinds cannot be listed: "+err.Error())
		return
	}
	sendJSON(w, kinds)
}

// serveNamespaces returns the names of the namespaces, as they are or were at a revision.
func (s *Server) serveNamespaces(w http.ResponseWriter, r *http.Request) {
	selected, err := selectionOf(url.Values{
		"version": {"v1"}, "resource": {"namespaces"}, "at": r.URL.Query()["at"],
	})
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	t, err := s.list(r.Context(), selected)
	if err != nil {
		code := http.StatusBadGateway
		if selected.at != "" {
			code = http.StatusBadRequest // it is no longer kept, or there has been none yet
		}
		refuse(w, code, "The namespaces cannot be listed: "+err.Error())
		return
	}
	names := make([]string, len(t.Rows))
	for i, n := range t.Rows {
		names[i] = n.Name
	}
	slices.Sort(names)
	sendJSON(w, names)
}
