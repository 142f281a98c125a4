package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/chain/secretvalues"
	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server/internal/requests"
)

// tryTimeout bounds a request that somebody tries.
const tryTimeout = 20 * time.Second

// secretsRead is how many Secrets are looked at before many are deleted.
const secretsRead = 500

// fieldManager is the manager of what is applied here.
const fieldManager = "kinproc-dashboard"

// attempt is a request that somebody tries.
type attempt struct {
	Method string   `json:"method"`
	Path   string   `json:"path"`
	Body   string   `json:"body"` // YAML or JSON
	As     string   `json:"as"`   // the user to impersonate
	Groups []string `json:"groups"`
}

// refusal is why a request is not sent, as a sentence.
type refusal struct {
	code     int
	sentence string
}

func (r refusal) Error() string { return r.sentence }

func badInput(format string, args ...any) error {
	return refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// serveTry sends a request and returns the response with its trace.
func (s *Server) serveTry(w http.ResponseWriter, r *http.Request) {
	var a attempt
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimit))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&a); err != nil {
		refuse(w, http.StatusBadRequest, "The page sent something that the dashboard does not "+
			"understand: "+err.Error())
		return
	}
	a.Method = strings.ToUpper(strings.TrimSpace(a.Method))
	if a.Method != http.MethodGet && !s.options.Writes && slices.Contains(methods, a.Method) {
		refuse(w, http.StatusForbidden, fmt.Sprintf("The dashboard is read-only, so it does not send "+
			"a %s. Start it with --dashboard-writes to allow that.", a.Method))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), tryTimeout)
	defer cancel()
	answered, err := s.try(ctx, a)
	answer(ctx, w, answered, err)
}

// walkPath and walkBody are the request of the guided walk. Admission does much with this kind.
const walkPath = "/api/v1/namespaces/default/pods"

const walkBody = `apiVersion: v1
kind: Pod
metadata:
  generateName: walk-
spec:
  containers:
  - name: main
    image: nginx
`

// serveWalk creates an object for the guided walk and deletes it again, even if the page goes away.
// If writes are not allowed, it is a dry run, of which nothing is kept.
func (s *Server) serveWalk(w http.ResponseWriter, r *http.Request) {
	a := attempt{Method: http.MethodPost, Path: walkPath, Body: walkBody}
	if !s.options.Writes {
		a.Path += "?dryRun=All"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), tryTimeout)
	defer cancel()
	walked, err := s.try(ctx, a)
	if err == nil && walked.Created != "" {
		now := int64(0)
		err = s.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).
			Namespace("default").
			Delete(ctx, walked.Created, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			walked.Left = err.Error()
		}
		err = nil
	}
	answer(ctx, w, walked, err)
}

// answer sends the answer to an attempt to the page, or why there is none.
func answer(ctx context.Context, w http.ResponseWriter, a *answered, err error) {
	if err == nil {
		sendJSON(w, a)
		return
	}
	refused := refusal{http.StatusBadGateway, "The request failed: " + err.Error()}
	if ctx.Err() != nil {
		refused.sentence = fmt.Sprintf("The control plane did not answer within %s.", tryTimeout)
	}
	errors.As(err, &refused)
	refuse(w, refused.code, refused.sentence)
}

var methods = []string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// check returns the address of an attempt and the resource that it is for. The error is a refusal.
func (s *Server) check(a attempt) (*url.URL, *genericapirequest.RequestInfo, error) {
	if !slices.Contains(methods, a.Method) {
		return nil, nil, badInput("%q is not a method: use one of %s.", a.Method,
			strings.Join(methods, ", "))
	}
	if !strings.HasPrefix(a.Path, "/") || strings.HasPrefix(a.Path, "//") {
		return nil, nil, badInput("The path %q does not begin with one slash, as /api/v1/nodes does.",
			a.Path)
	}
	u, err := url.ParseRequestURI(a.Path)
	if err != nil {
		return nil, nil, badInput("%q is not a path.", a.Path)
	}
	if slices.Contains(strings.Split(u.Path, "/"), "..") {
		return nil, nil, badInput("The path %q has the segment .., which leads to another path.",
			a.Path)
	}
	for _, name := range append([]string{a.As}, a.Groups...) {
		if strings.ContainsFunc(name, unicode.IsControl) {
			return nil, nil, badInput("%q is not the name of a user or a group.", name)
		}
	}
	if a.As == "" && len(a.Groups) > 0 {
		return nil, nil, badInput("Groups need a user who is in them.")
	}
	// As the control plane does, so that the watch of a history is a watch here too.
	info, err := requests.Resolve(&http.Request{Method: a.Method, URL: u})
	if err != nil {
		return nil, nil, badInput("%q is not a path of the API: %s.", a.Path, err)
	}
	follow := u.Query().Get("follow")
	switch {
	case info.Verb == "watch" || slices.Contains(info.Parts, "watch") ||
		follow != "" && follow != "false" || strings.HasPrefix(u.Path, trace.FollowPath):
		return nil, nil, badInput("That answer does not end. The object browser shows objects live.")
	case info.Verb == "proxy" ||
		slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, info.Subresource):
		return nil, nil, badInput("The dashboard does not connect to pods, services and nodes. " +
			"Use kubectl.")
	}
	to := *s.host
	to.Path = strings.TrimSuffix(s.host.Path, "/") + u.Path
	to.RawPath, to.RawQuery = u.RawPath, u.RawQuery
	return &to, info, nil
}

// content is the function content, for one attempt at a time.
func (s *Server) content(
	ctx context.Context, a attempt,
) (body []byte, contentType string, err error) {
	s.decoding.Lock()
	defer s.decoding.Unlock()
	if err := context.Cause(ctx); err != nil { // while others decoded
		return nil, "", err
	}
	return content(a)
}

// content returns the body of an attempt as JSON, and its content type.
func content(a attempt) (body []byte, contentType string, err error) {
	if strings.TrimSpace(a.Body) == "" {
		if a.Method != http.MethodGet && a.Method != http.MethodDelete {
			return nil, "", badInput("A %s needs a body, in YAML or JSON.", a.Method)
		}
		return nil, "", nil
	}
	if a.Method == http.MethodGet {
		return nil, "", badInput("A GET has no body.")
	}
	if strings.Contains(strings.TrimPrefix(strings.TrimSpace(a.Body), "---"), "\n---") {
		return nil, "", badInput("The body has several documents. A request has one.")
	}
	if placeholder := secretvalues.Placeholder(a.Body); placeholder != "" {
		return nil, "", badInput("The body has %q, which the dashboard shows in place of a secret. "+
			"Replace it, or leave the field out of a PATCH.", placeholder)
	}
	body, err = documents.ToJSON([]byte(a.Body))
	if err != nil {
		problem := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		return nil, "", badInput("The body is neither YAML nor JSON: %s.",
			strings.Join(strings.Fields(problem), " "))
	}
	var object map[string]any
	isObject := json.Unmarshal(body, &object) == nil && object != nil
	isList := bytes.HasPrefix(body, []byte("["))
	switch {
	case a.Method == http.MethodPatch && isList:
		return body, "application/json-patch+json", nil
	case !isObject:
		return nil, "", badInput("The body is not an object: it has no fields, such as apiVersion.")
	case a.Method == http.MethodPatch && object["apiVersion"] != nil && object["kind"] != nil:
		return body, "application/apply-patch+yaml", nil
	case a.Method == http.MethodPatch:
		return body, "application/merge-patch+json", nil
	}
	return body, "application/json", nil
}

// try sends an attempt. The error may be a refusal.
func (s *Server) try(ctx context.Context, a attempt) (*answered, error) {
	to, info, err := s.check(a)
	if err != nil {
		return nil, err
	}
	body, contentType, err := s.content(ctx, a)
	if err != nil {
		return nil, err
	}
	var hide hiding
	secrets := info.Resource == "secrets"
	if secrets {
		list := operations(body, contentType)
		if err := checkPatch(list); err != nil {
			return nil, err
		}
		hide.names = a.Method == http.MethodPost
		hide.addRequest(body, list)
		s.addStored(ctx, &hide, a.Method, to)
	}
	if q := to.Query(); contentType == "application/apply-patch+yaml" && !q.Has("fieldManager") {
		q.Set("fieldManager", fieldManager)
		to.RawQuery = q.Encode()
	}
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: a.As, Groups: a.Groups}
	var traced trace.Traced
	trace.Wrap(config, func(t trace.Traced) { traced = t })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, a.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, badInput("%q is not a path.", a.Path)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set(trace.Header, trace.Objects)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	began := time.Now()
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	received, size, err := read(response)
	if err != nil {
		return nil, err
	}
	hide.add(received, secrets)
	result := &answered{
		Method: a.Method, Path: a.Path, User: a.As, Code: response.StatusCode, Bytes: size,
		Took: time.Since(began), Body: readable(response, received, size, secrets, &hide),
	}
	result.show(traced.Steps, &hide)
	if response.StatusCode >= http.StatusBadRequest {
		var status metav1.Status
		if json.Unmarshal(received, &status) == nil {
			result.Message = hide.values.Hide(status.Message)
			if status.Details != nil {
				for _, c := range status.Details.Causes {
					result.Causes = append(result.Causes,
						fieldError{c.Field, hide.values.Hide(c.Message)})
				}
			}
		}
	}
	if a.Path == walkPath && response.StatusCode == http.StatusCreated {
		var created struct{ Metadata struct{ Name string } }
		if json.Unmarshal(received, &created) == nil {
			result.Created = created.Metadata.Name
		}
	}
	return result, nil
}

// addStored adds the data of the Secrets that a request is about to change. The answer may have
// them though it has no Secret, as in the message of a webhook. If they cannot be read, nobody can
// say anything about them either, or only by what it knows of them otherwise.
func (s *Server) addStored(ctx context.Context, hide *hiding, method string, to *url.URL) {
	if method == http.MethodGet || method == http.MethodPost {
		return
	}
	stored := *to
	stored.RawQuery = url.Values{"limit": {strconv.Itoa(secretsRead)}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, stored.String(), nil)
	if err != nil {
		return
	}
	r.Header.Set("Accept", "application/json")
	response, err := s.client.Do(r)
	if err != nil {
		return
	}
	if received, _, err := read(response); err == nil {
		hide.add(received, true)
	}
}

// read reads and closes the body of a response. What is above the limit is only counted.
func read(response *http.Response) (body []byte, size int64, err error) {
	defer response.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(response.Body, bodyLimit)); err != nil {
		return nil, 0, fmt.Errorf("read the response: %w", err)
	}
	more, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return nil, 0, fmt.Errorf("read the response: %w", err)
	}
	return body, int64(len(body)) + more, nil
}

// readable returns the body of a response as text, without the data of Secrets.
func readable(
	response *http.Response, body []byte, size int64, secrets bool, hide *hiding,
) string {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case size > int64(len(body)):
		return fmt.Sprintf("# %d bytes, which is too much to show\n", size)
	case kind == "application/json":
		text, err := hide.yaml(body, secrets)
		if err != nil {
			return fmt.Sprintf("# %d bytes that are not JSON, though they are said to be\n", size)
		}
		return text
	case kind == "text/plain" && !secrets:
		return string(body)
	}
	return fmt.Sprintf("# %d bytes of type %q\n", size, kind)
}
