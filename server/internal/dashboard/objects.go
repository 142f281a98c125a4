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
	"strings"
	"time"

	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// listLimit is how many objects of a kind are shown.
	listLimit = 10_000
	// collecting is how long to collect changes before the objects are listed again.
	collecting = 300 * time.Millisecond
	// listAgain is the time before another list of objects that cannot be watched.
	listAgain = 2 * time.Second
	// bodyLimit is the size up to which a response is shown, and the one up to which a request is
	// taken.
	bodyLimit = 4 << 20
)

// selection is what the object browser shows: the objects of a resource, in a namespace or in all,
// and one of them as YAML if it is named.
type selection struct {
	resource       schema.GroupVersionResource
	namespace      string // of the objects, or empty
	labels, fields string // selectors
	name, inside   string // one object and its namespace, or empty
	only           bool   // only that object, not the list
	at             string // a revision at which all are looked at, or empty for now
}

// detail is an object.
type detail struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	YAML      string `json:"yaml"`
	UID       string `json:"uid"`
	// Containers are the names of a pod's containers, for their logs.
	Containers []string `json:"containers,omitempty"`
	// Missing is why there is no object. The YAML is a comment then.
	Missing string `json:"missing,omitempty"`
}

func selectionOf(q url.Values) (selection, error) {
	s := selection{
		resource: schema.GroupVersionResource{
			Group: q.Get("group"), Version: q.Get("version"), Resource: q.Get("resource"),
		},
		namespace: q.Get("namespace"), name: q.Get("name"), inside: q.Get("inside"),
		labels: strings.TrimSpace(q.Get("labels")), fields: strings.TrimSpace(q.Get("fields")),
		only: q.Get("only") != "", at: q.Get("at"),
	}
	if s.at != "" {
		if at, err := strconv.ParseInt(s.at, 10, 64); err != nil || at < 1 {
			return s, badInput("%q is not a revision: it is no positive number.", s.at)
		}
	}
	if s.only && s.name != "" {
		s.namespace, s.labels, s.fields = s.inside, "", nameSelector(s.name)
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

// nameSelector selects the object of a name.
func nameSelector(name string) string {
	return fields.OneTermEqualSelector("metadata.name", name).String()
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

// ofThen returns an error unless a list, by its version, is of the revision that was asked for. An
// extension API server may have other versions, or none.
func (s selection) ofThen(version string) error {
	if s.at != "" && version != s.at {
		return fmt.Errorf("the server of %s does not have them as they were at revision %s",
			s.resource.Resource, s.at)
	}
	return nil
}

// serveObjects streams the objects of a resource whenever they change. As they were at a revision,
// they are sent once.
func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request) {
	selected, err := selectionOf(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	stream := newStream(w)
	for ctx := r.Context(); ctx.Err() == nil; {
		began := time.Now()
		table, err := s.list(ctx, selected)
		if err != nil {
			if stream.send("failed", "The objects cannot be listed: "+err.Error()) != nil {
				return
			}
			if selected.at != "" {
				<-ctx.Done()
				return
			}
			sleep(ctx, listAgain)
			continue
		}
		if !selected.only && stream.send("list", table) != nil {
			return
		}
		if selected.name != "" {
			one, err := s.object(ctx, selected)
			if err != nil {
				one = detail{
					Namespace: selected.inside, Name: selected.name, YAML: "# " + err.Error() + "\n",
					Missing: err.Error(),
				}
			}
			if stream.send("object", one) != nil {
				return
			}
		}
		if selected.at != "" {
			<-ctx.Done() // the browser would ask again after the end of the stream
			return
		}
		// A list of ten thousand objects takes its time. It is not made again and again.
		s.awaitChange(ctx, selected, table.version, max(collecting, 2*time.Since(began)))
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
	response, err := s.open(ctx, path, query, accept)
	if err != nil {
		return nil, err
	}
	defer response.Close()
	body, err := io.ReadAll(response)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return body, nil
}

// open returns the body of a response while it arrives.
func (s *Server) open(ctx context.Context, path, query, accept string) (io.ReadCloser, error) {
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
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	body, _, err := read(response)
	if err != nil {
		return nil, err
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		status.Message = "the control plane answered " + response.Status
	}
	return nil, errors.New(status.Message)
}

// getObject returns the selected object, in a namespace, as it is or was then.
func (s *Server) getObject(
	ctx context.Context, selected selection, inside string,
) ([]byte, error) {
	if selected.at == "" {
		return s.get(ctx, path.Join(selected.path(inside), selected.name), "", "application/json")
	}
	list, err := s.dynamic.Resource(selected.resource).Namespace(inside).
		List(ctx, metav1.ListOptions{
			FieldSelector: nameSelector(selected.name), ResourceVersion: selected.at,
			ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
	if err != nil {
		return nil, err
	}
	if err := selected.ofThen(list.GetResourceVersion()); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%s %q was not there at revision %s",
			selected.resource.GroupResource(), selected.name, selected.at)
	}
	return list.Items[0].MarshalJSON()
}

// object returns the selected object, without the data of a Secret.
func (s *Server) object(ctx context.Context, selected selection) (detail, error) {
	body, err := s.getObject(ctx, selected, selected.inside)
	if err != nil {
		return detail{}, err
	}
	text, err := redactYAML(body, selected.secrets())
	if err != nil {
		return detail{}, fmt.Errorf("read the object: %w", err)
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &object); err != nil {
		return detail{}, fmt.Errorf("read the object: %w", err)
	}
	one := detail{
		Namespace: selected.inside, Name: selected.name, YAML: text, UID: string(object.UID),
	}
	if selected.resource == pods {
		one.Containers = containersOf(body)
	}
	return one, nil
}

// containersOf returns the names of the containers of a pod, its own ones first.
func containersOf(pod []byte) (names []string) {
	type containers []struct{ Name string }
	var p struct {
		Spec struct{ Containers, InitContainers, EphemeralContainers containers }
	}
	_ = json.Unmarshal(pod, &p) // one that cannot be read has no names
	for _, list := range []containers{
		p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers,
	} {
		for _, c := range list {
			names = append(names, c.Name)
		}
	}
	return names
}

// awaitChange returns when something has changed after a version of the list and collecting has
// passed, or after some time if the objects cannot be watched.
func (s *Server) awaitChange(
	ctx context.Context, selected selection, version string, collecting time.Duration,
) {
	watch, err := s.dynamic.Resource(selected.resource).Namespace(selected.namespace).
		Watch(ctx, metav1.ListOptions{
			ResourceVersion: version, LabelSelector: selected.labels, FieldSelector: selected.fields,
		})
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
			sleep(ctx, collecting) // a server that ends watches at once
			return
		}
	}
	// More changes are on their way, as when a Deployment is created.
	enough := time.NewTimer(collecting)
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-enough.C:
			return
		case _, ok := <-watch.ResultChan():
			if !ok {
				sleep(ctx, collecting)
				return
			}
		}
	}
}
