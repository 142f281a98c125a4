package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// listLimit is how many objects of a kind are shown.
	listLimit = 500
	// settle is how long to collect changes before the objects are listed again.
	settle = 300 * time.Millisecond
	// listAgain is the time before another list of objects that cannot be watched.
	listAgain = 2 * time.Second
	// bodyLimit is the size up to which a response is shown, and the one up to which a request is
	// taken.
	bodyLimit = 4 << 20
)

// tableType asks for a table, as kubectl get does. Servers that have none send a list.
const tableType = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// selection is what the object browser shows: the objects of a resource, in a namespace or in all,
// and one of them as YAML if it is named.
type selection struct {
	resource     schema.GroupVersionResource
	namespace    string // of the objects, or empty
	name, inside string // one object and its namespace, or empty
}

// table is a list of objects.
type table struct {
	Columns []string `json:"columns"`
	Rows    []row    `json:"rows"`
	// More is how many objects there are besides.
	More int64 `json:"more"`

	version string // of the list
}

// row is an object in a table.
type row struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Cells     []any  `json:"cells"`
}

// detail is an object.
type detail struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	YAML      string `json:"yaml"`
}

func selectionOf(q url.Values) (selection, error) {
	s := selection{
		resource: schema.GroupVersionResource{
			Group: q.Get("group"), Version: q.Get("version"), Resource: q.Get("resource"),
		},
		namespace: q.Get("namespace"), name: q.Get("name"), inside: q.Get("inside"),
	}
	if s.resource.Version == "" || s.resource.Resource == "" {
		return s, badInput("The object browser needs a version and a resource.")
	}
	for _, segment := range []string{
		s.resource.Group, s.resource.Version, s.resource.Resource, s.namespace, s.name, s.inside,
	} {
		if problems := pathvalidation.IsValidPathSegmentName(segment); len(problems) > 0 {
			return s, badInput("%q is not part of a path: it %s.", segment, problems[0])
		}
	}
	return s, nil
}

// path returns the path of the objects in a namespace, or in all.
func (s selection) path(namespace string) string {
	prefix := path.Join("/apis", s.resource.Group)
	if s.resource.Group == "" {
		prefix = "/api"
	}
	prefix = path.Join(prefix, s.resource.Version)
	if namespace != "" {
		prefix = path.Join(prefix, "namespaces", namespace)
	}
	return path.Join(prefix, s.resource.Resource)
}

// secrets reports whether the objects are Secrets.
func (s selection) secrets() bool { return s.resource.Resource == "secrets" }

// serveObjects streams the objects of a resource whenever they change.
func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request) {
	selected, err := selectionOf(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	stream := newStream(w)
	for ctx := r.Context(); ctx.Err() == nil; {
		table, err := s.list(ctx, selected)
		if err != nil {
			if stream.send("failed", "The objects cannot be listed: "+err.Error()) != nil {
				return
			}
			sleep(ctx, listAgain)
			continue
		}
		if stream.send("list", table) != nil {
			return
		}
		if selected.name != "" {
			one, err := s.object(ctx, selected)
			if err != nil {
				one = detail{selected.inside, selected.name, "# " + err.Error() + "\n"}
			}
			if stream.send("object", one) != nil {
				return
			}
		}
		s.awaitChange(ctx, selected, table.version)
	}
}

// sleep waits, but not longer than ctx lasts.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// get returns the body of a response.
func (s *Server) get(ctx context.Context, path, query, accept string) ([]byte, error) {
	u := s.host.JoinPath(path)
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	response, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		var status metav1.Status
		if json.Unmarshal(body, &status) != nil || status.Message == "" {
			status.Message = "the control plane answered " + response.Status
		}
		return nil, errors.New(status.Message)
	}
	return body, nil
}

// list returns the objects as a table.
func (s *Server) list(ctx context.Context, selected selection) (table, error) {
	body, err := s.get(ctx, selected.path(selected.namespace), "limit="+strconv.Itoa(listLimit),
		tableType)
	if err != nil {
		return table{}, err
	}
	var kind metav1.TypeMeta
	if err := json.Unmarshal(body, &kind); err != nil {
		return table{}, fmt.Errorf("read the list: %w", err)
	}
	if kind.Kind != "Table" {
		return plainTable(body)
	}
	var sent metav1.Table
	if err := json.Unmarshal(body, &sent); err != nil {
		return table{}, fmt.Errorf("read the list: %w", err)
	}
	t := newTable(sent.ListMeta)
	var columns []int // the ones that kubectl shows without -o wide
	for i, c := range sent.ColumnDefinitions {
		if c.Priority == 0 {
			columns = append(columns, i)
			t.Columns = append(t.Columns, c.Name)
		}
	}
	for _, each := range sent.Rows {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(each.Object.Raw, &object); err != nil {
			return table{}, fmt.Errorf("read the list: %w", err)
		}
		r := row{Namespace: object.Namespace, Name: object.Name}
		for _, i := range columns {
			if i < len(each.Cells) {
				r.Cells = append(r.Cells, each.Cells[i])
			}
		}
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

// plainTable makes a table of a list from a server that has no tables.
func plainTable(body []byte) (table, error) {
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return table{}, fmt.Errorf("read the list: %w", err)
	}
	t := newTable(list.ListMeta)
	t.Columns = []string{"Name", "Age"}
	for _, object := range list.Items {
		age := "unknown"
		if !object.CreationTimestamp.IsZero() {
			age = duration.HumanDuration(time.Since(object.CreationTimestamp.Time))
		}
		t.Rows = append(t.Rows, row{object.Namespace, object.Name, []any{object.Name, age}})
	}
	return t, nil
}

// object returns the selected object, without the data of a Secret.
func (s *Server) object(ctx context.Context, selected selection) (detail, error) {
	body, err := s.get(ctx, path.Join(selected.path(selected.inside), selected.name), "",
		"application/json")
	if err != nil {
		return detail{}, err
	}
	text, err := redactYAML(body, selected.secrets())
	if err != nil {
		return detail{}, fmt.Errorf("read the object: %w", err)
	}
	return detail{selected.inside, selected.name, text}, nil
}

// awaitChange returns when something has changed after a version of the list, or after some time if
// the objects cannot be watched.
func (s *Server) awaitChange(ctx context.Context, selected selection, version string) {
	watch, err := s.dynamic.Resource(selected.resource).Namespace(selected.namespace).
		Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		sleep(ctx, listAgain)
		return
	}
	defer watch.Stop()
	select {
	case <-ctx.Done():
		return
	case _, ok := <-watch.ResultChan():
		if !ok {
			sleep(ctx, settle) // a server that ends watches at once
			return
		}
	}
	// More changes are on their way, as when a Deployment is created.
	enough := time.NewTimer(settle)
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-enough.C:
			return
		case _, ok := <-watch.ResultChan():
			if !ok {
				sleep(ctx, settle)
				return
			}
		}
	}
}
