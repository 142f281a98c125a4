package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var events = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// event is an event of either group.
type event struct {
	Metadata  metav1.ObjectMeta `json:"metadata"`
	Type      string            `json:"type"`
	Reason    string            `json:"reason"`
	Message   string            `json:"message"`
	Note      string            `json:"note"`
	Involved  reference         `json:"involvedObject"`
	Regarding reference         `json:"regarding"`
	Source    struct {
		Component string `json:"component"`
	} `json:"source"`
	Component string           `json:"reportingComponent"`
	Control   string           `json:"reportingController"`
	First     metav1.Time      `json:"firstTimestamp"`
	Last      metav1.Time      `json:"lastTimestamp"`
	Time      metav1.MicroTime `json:"eventTime"`
	Count     int              `json:"count"`
	Series    *eventSeries     `json:"series"`
	OldCount  int              `json:"deprecatedCount"`
	OldLast   metav1.Time      `json:"deprecatedLastTimestamp"`
}

type reference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type eventSeries struct {
	Count int              `json:"count"`
	Last  metav1.MicroTime `json:"lastObservedTime"`
}

// seen returns when an event was last seen, and how often.
func (e *event) seen() (time.Time, int) {
	last := e.Metadata.CreationTimestamp.Time
	for _, at := range []time.Time{e.First.Time, e.Last.Time, e.OldLast.Time, e.Time.Time} {
		if at.After(last) {
			last = at
		}
	}
	count := max(e.Count, e.OldCount, 1)
	if e.Series != nil {
		count = max(count, e.Series.Count)
		if e.Series.Last.After(last) {
			last = e.Series.Last.Time
		}
	}
	return last, count
}

// eventTable makes a table of a list of events, newest first.
func eventTable(body []byte) (table, error) {
	var list struct {
		metav1.ListMeta `json:"metadata"`
		Items           []event `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return table{}, fmt.Errorf("read the events: %w", err)
	}
	t := newTable(list.ListMeta)
	t.Columns = []column{
		{Name: "Last seen"}, {Name: "Type"}, {Name: "Reason"}, {Name: "Object"}, {Name: "Message"},
		{Name: "Count"}, {Name: "From", Wide: true},
	}
	for _, e := range list.Items {
		r := newRow(e.Metadata)
		var count int
		r.At, count = e.seen()
		about := reference{
			cmp.Or(e.Involved.Kind, e.Regarding.Kind), "", cmp.Or(e.Involved.Name, e.Regarding.Name),
		}
		if e.Type == "Warning" {
			r.State = failing
		}
		r.Cells = []any{
			age(r.At), e.Type, e.Reason, strings.ToLower(about.Kind) + "/" + about.Name,
			cmp.Or(e.Message, e.Note), count, cmp.Or(e.Source.Component, e.Component, e.Control),
		}
		t.Rows = append(t.Rows, r)
	}
	slices.SortStableFunc(t.Rows, func(a, b row) int { return b.At.Compare(a.At) })
	return t, nil
}

// eventsOf returns the events about an object.
func (s *Server) eventsOf(ctx context.Context, of selection, uid string) (table, error) {
	return s.list(ctx, selection{
		resource: events, namespace: of.inside, at: of.at,
		fields: fields.OneTermEqualSelector("involvedObject.uid", uid).String(),
	})
}

// serveEvents returns the events about an object.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	selected, err := selectionOf(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	t, err := s.eventsOf(r.Context(), selected, r.URL.Query().Get("uid"))
	if err != nil {
		refuse(w, http.StatusBadGateway, "The events cannot be listed: "+err.Error())
		return
	}
	sendJSON(w, t)
}
