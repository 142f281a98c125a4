package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// foundLimit bounds the objects that a search shows.
const foundLimit = 200

// found is an object that a search has found.
type found struct {
	kind
	Inside string `json:"inside"`
	Name   string `json:"name"`
	State  state  `json:"state,omitempty"`
}

// serveSearch returns the objects of all kinds whose name contains a text. Those whose name begins
// with it come first.
func (s *Server) serveSearch(w http.ResponseWriter, r *http.Request) {
	text := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("text")))
	if text == "" {
		refuse(w, http.StatusBadRequest, "A search needs a part of a name.")
		return
	}
	kinds, err := s.kinds(r.Context())
	if err != nil {
		refuse(w, http.StatusBadGateway, "The kinds cannot be listed: "+err.Error())
		return
	}
	answer := struct {
		Found []found `json:"found"`
		More  int     `json:"more"`
	}{Found: []found{}}
	var mu sync.Mutex
	err = s.lists(r.Context(), kinds, selection{}, func(k kind, t table) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range t.Rows {
			if strings.Contains(r.Name, text) {
				answer.Found = append(answer.Found, found{k, r.Namespace, r.Name, r.State})
			}
		}
	})
	if err != nil {
		return // the page has gone away
	}
	rank := func(f found) int { return strings.Index(f.Name, text) }
	slices.SortFunc(answer.Found, func(a, b found) int {
		return cmp.Or(min(rank(a), 1)-min(rank(b), 1), len(a.Name)-len(b.Name),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Inside, b.Inside), cmp.Compare(a.Name, b.Name))
	})
	answer.More = max(0, len(answer.Found)-foundLimit)
	answer.Found = answer.Found[:min(len(answer.Found), foundLimit)]
	sendJSON(w, answer)
}
