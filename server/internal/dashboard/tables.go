package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
)

// tableType asks for a table, as kubectl get does. Servers that have none send a list.
const tableType = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// table is a list of objects.
type table struct {
	Columns []column `json:"columns"`
	Rows    []row    `json:"rows"`
	// More is how many objects there are besides.
	More int64 `json:"more"`

	version string // of the list
}

// column is a column of a table.
type column struct {
	Name string `json:"name"`
	Wide bool   `json:"wide,omitempty"` // kubectl shows it with -o wide
}

// row is an object in a table.
type row struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Cells     []any  `json:"cells"`
	State     state  `json:"state,omitempty"`
	// At is when the object was created, or when an event was last seen.
	At time.Time `json:"at"`

	metadata metav1.ObjectMeta
}

// list returns the objects as a table.
func (s *Server) list(ctx context.Context, selected selection) (table, error) {
	query := url.Values{"limit": {strconv.Itoa(listLimit)}}
	if selected.labels != "" {
		query.Set("labelSelector", selected.labels)
	}
	if selected.fields != "" {
		query.Set("fieldSelector", selected.fields)
	}
	if selected.at != "" {
		query.Set("resourceVersion", selected.at)
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
	accept := tableType
	if selected.resource.Resource == "events" {
		accept = "application/json" // a table does not have the times
	}
	body, err := s.get(ctx, selected.path(selected.namespace), query.Encode(), accept)
	if err != nil {
		return table{}, err
	}
	var kind metav1.TypeMeta
	if err := json.Unmarshal(body, &kind); err != nil {
		return table{}, fmt.Errorf("read the list: %w", err)
	}
	var t table
	switch kind.Kind {
	case "EventList":
		t, err = eventTable(body)
	case "Table":
		t, err = ownTable(body, selected.resource.GroupResource())
	default:
		t, err = plainTable(body)
	}
	if err == nil {
		err = selected.ofThen(t.version)
	}
	return t, err
}

// ownTable makes a table of one that the server of a resource has made.
func ownTable(body []byte, of schema.GroupResource) (table, error) {
	var sent metav1.Table
	if err := json.Unmarshal(body, &sent); err != nil {
		return table{}, fmt.Errorf("read the list: %w", err)
	}
	t := newTable(sent.ListMeta)
	for _, c := range sent.ColumnDefinitions {
		t.Columns = append(t.Columns, column{c.Name, c.Priority > 0})
	}
	for _, each := range sent.Rows {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(each.Object.Raw, &object); err != nil {
			return table{}, fmt.Errorf("read the list: %w", err)
		}
		r := newRow(object.ObjectMeta)
		r.Cells = each.Cells
		r.State = stateOf(of, t.cells(r), !object.DeletionTimestamp.IsZero())
		t.Rows = append(t.Rows, r)
	}
	return t, nil
}

func newTable(meta metav1.ListMeta) table {
	t := table{version: meta.ResourceVersion, Rows: []row{}}
	if meta.RemainingItemCount != nil {
		t.More = *meta.RemainingItemCount
	}
	return t
}

func newRow(meta metav1.ObjectMeta) row {
	meta.ManagedFields, meta.Annotations = nil, nil // nobody needs them, and they are large
	return row{
		Namespace: meta.Namespace, Name: meta.Name, At: meta.CreationTimestamp.Time, metadata: meta,
	}
}

// cells returns a function that returns the cell of a row by the name of its column, in any case.
// Without such a column, that is nothing.
func (t *table) cells(r row) func(string) string {
	return func(name string) string {
		for i, c := range t.Columns {
			if i < len(r.Cells) && strings.EqualFold(c.Name, name) {
				if r.Cells[i] == nil {
					return ""
				}
				return fmt.Sprint(r.Cells[i])
			}
		}
		return ""
	}
}

// plainTable makes a table of a list from a server that has no tables.
func plainTable(body []byte) (table, error) {
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return table{}, fmt.Errorf("read the list: %w", err)
	}
	t := newTable(list.ListMeta)
	t.Columns = []column{{Name: "Name"}, {Name: "Age"}}
	for _, object := range list.Items {
		r := newRow(object.ObjectMeta)
		r.Cells = []any{object.Name, age(object.CreationTimestamp.Time)}
		if !object.DeletionTimestamp.IsZero() {
			r.State = terminating
		}
		t.Rows = append(t.Rows, r)
	}
	return t, nil
}

func age(since time.Time) string {
	if since.IsZero() {
		return "unknown"
	}
	return duration.HumanDuration(time.Since(since))
}
