package dashboard

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/chain/secretvalues"
)

// versionsShown bounds how many versions of an object are shown.
const versionsShown = 200

// version is a version of an object.
type version struct {
	Revision  int64      `json:"revision"`
	Event     string     `json:"event"`
	Time      *time.Time `json:"time"`
	Resource  string     `json:"resource"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	User      string     `json:"user"`
	As        string     `json:"as,omitempty"` // who impersonated the user
	Client    string     `json:"client"`       // as clientOf says
	Loop      bool       `json:"loop"`
	Verb      string     `json:"verb"`
	Manager   string     `json:"manager"`
	Changes   []string   `json:"changes"`
	Spec      bool       `json:"spec"` // it changes more than the status
	YAML      string     `json:"yaml,omitempty"`
}

// objectHistory is the history of an object.
type objectHistory struct {
	Versions  []version `json:"versions"` // oldest first
	More      bool      `json:"more"`
	Compacted bool      `json:"compacted"`
}

// describeVersion returns a version for the page, without its object.
func describeVersion(v history.Version) version {
	d := version{
		Revision: v.Revision, Event: v.Event, Time: v.Time, Resource: v.Resource,
		Namespace: v.Namespace, Name: v.Name,
	}
	if w := v.Writer; w != nil {
		d.User, d.As, d.Verb, d.Manager = w.User, w.Impersonator, w.Verb, w.Manager
		d.Client, d.Loop = clientOfAgent(w.User, w.UserAgent)
		if w.Subresource != "" {
			d.Verb += " " + w.Subresource
		}
	}
	d.Spec = changesSpec(v)
	for _, c := range v.Changes {
		d.Changes = append(d.Changes, describeChange(c, v.Resource == "secrets"))
	}
	return d
}

// follows matches the fields that follow from others. A controller writes them with the status.
var follows = regexp.MustCompile(`^\.status\b|` +
	`^\.metadata\.(generation|resourceVersion|managedFields)\b|` +
	`^\.metadata\.annotations.*deployment\.kubernetes\.io/revision`)

// changesSpec reports whether a version changes what somebody wants, and not only how things are.
func changesSpec(v history.Version) bool {
	return v.Event != history.Updated || len(v.Changes) == 0 ||
		slices.ContainsFunc(v.Changes, func(c history.Change) bool {
			return !follows.MatchString(c.Path)
		})
}

// describeChange returns a change as a line, without copies of objects in annotations.
func describeChange(c history.Change, secrets bool) string {
	for _, value := range []*json.RawMessage{&c.Before, &c.After} {
		if *value == nil {
			continue
		}
		redacted, err := redactJSON(*value, false)
		if err != nil || strings.Contains(c.Path, secretvalues.LastApplied) ||
			secrets && strings.HasPrefix(c.Path, ".metadata.annotations") {
			redacted = []byte(`"(not shown)"`)
		}
		*value = redacted
	}
	return c.String()
}

// serveHistory returns the versions of an object.
func (s *Server) serveHistory(w http.ResponseWriter, r *http.Request) {
	selected, err := selectionOf(r.URL.Query())
	if err == nil && selected.name == "" {
		err = badInput("A history needs the name of an object.")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	path := history.PathOf(selected.resource, selected.inside, selected.name)
	h, err := history.Get(r.Context(), s.config, path, history.Options{Limit: versionsShown})
	if err != nil {
		refuse(w, http.StatusBadGateway, "There is no history: "+err.Error())
		return
	}
	all := objectHistory{Versions: []version{}, More: h.More, Compacted: h.Compacted}
	for _, v := range h.Versions {
		d := describeVersion(v)
		if v.Object != nil {
			if d.YAML, err = redactYAML(v.Object, selected.secrets()); err != nil {
				d.YAML = "# It is not JSON.\n"
			}
		}
		all.Versions = append(all.Versions, d)
	}
	sendJSON(w, all)
}
