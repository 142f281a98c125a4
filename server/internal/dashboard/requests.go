package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server/internal/nesting"
)

// keptRequest is a request with the memory that it takes.
type keptRequest struct {
	id    uint64
	bytes int
	trace.Request
}

// requestRing keeps the latest requests, within its bounds.
type requestRing struct {
	most, mostBytes int
	kept            []keptRequest // oldest first
	bytes           int
}

// add keeps a request with a higher ID than those before.
func (r *requestRing) add(id uint64, request trace.Request) {
	r.kept = append(r.kept, keptRequest{id, request.Size(), request})
	r.bytes += r.kept[len(r.kept)-1].bytes
	for len(r.kept) > 1 && (len(r.kept) > r.most || r.bytes > r.mostBytes) {
		r.bytes -= r.kept[0].bytes
		r.kept[0] = keptRequest{}
		r.kept = r.kept[1:]
	}
}

func (r *requestRing) clear() { r.kept, r.bytes = nil, 0 }

func (r *requestRing) find(id uint64) (trace.Request, bool) {
	at, ok := slices.BinarySearchFunc(r.kept, id, func(k keptRequest, id uint64) int {
		return cmp.Compare(k.id, id)
	})
	if !ok {
		return trace.Request{}, false
	}
	return r.kept[at].Request, true
}

// pause is the longest time between two requests of the same burst, and burstAround bounds how many
// of its requests are shown before and after one of them.
const (
	pause       = time.Second
	burstAround = 100
)

// burst returns the requests around one of them, in the order of their arrival, that seem to belong
// to the same work, such as a reconcile: they are of the same client and follow each other closely.
func burst(all []keptRequest, at int) []keptRequest {
	client, _ := clientOf(&all[at].Request)
	belongs := func(k *keptRequest) bool {
		other, _ := clientOf(&k.Request)
		return other == client && k.User == all[at].User
	}
	first, last := at, at
	var before, after []keptRequest
	for i := at - 1; i >= 0 && len(before) < burstAround &&
		all[first].Received.Sub(all[i].Received) <= pause; i-- {
		if belongs(&all[i]) {
			before = append(before, all[i])
			first = i
		}
	}
	for i := at + 1; i < len(all) && len(after) < burstAround &&
		all[i].Received.Sub(all[last].Received) <= pause; i++ {
		if belongs(&all[i]) {
			after = append(after, all[i])
			last = i
		}
	}
	slices.Reverse(before)
	return slices.Concat(before, all[at:at+1], after)
}

// related is a request of a burst, around another one.
type related struct {
	summary
	After time.Duration `json:"after"` // the first one, in nanoseconds
	// Near is set if it is for the same object, or one that is named after it, as a ReplicaSet is
	// after its Deployment.
	Near bool `json:"near"`
}

// objectName is the name of an object.
type objectName struct{ namespace, name string }

// near reports whether one object is named after the other.
func (o objectName) near(other objectName) bool {
	if o.namespace != other.namespace || o.name == "" || other.name == "" {
		return o == other
	}
	short, long := o.name, other.name
	if len(short) > len(long) {
		short, long = long, short
	}
	rest, ok := strings.CutPrefix(long, short)
	return ok && (rest == "" || rest[0] == '-' || rest[0] == '.') // an event has a point
}

// objectOf returns the object that a request is for. The name of a created one is in its trace.
func objectOf(r *trace.Request) (o objectName) {
	path, _, _ := strings.Cut(r.Path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return objectName{name: path}
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		o.namespace = parts[1]
		parts = parts[2:]
	}
	if len(parts) > 1 {
		o.name = parts[1]
		return o
	}
	for _, step := range r.Steps {
		var created struct{ Metadata struct{ Name string } }
		if step.Object != nil && json.Unmarshal(step.Object, &created) == nil &&
			created.Metadata.Name != "" {
			o.name = created.Metadata.Name
		}
	}
	return o
}

// step is a step of a trace, with the object as YAML.
type step struct {
	trace.Step
	nesting.Times
	Object string `json:"object,omitempty"`
}

// answered is a request with its steps.
type answered struct {
	ID       uint64        `json:"id,omitempty"`
	Method   string        `json:"method"`
	Path     string        `json:"path"`
	User     string        `json:"user,omitempty"`
	Client   string        `json:"client,omitempty"`
	Code     int           `json:"code"`
	Bytes    int64         `json:"bytes"`
	Received *time.Time    `json:"received,omitempty"`
	Took     time.Duration `json:"took"` // in nanoseconds
	Steps    []step        `json:"steps"`
	// Outside are the times outside of all steps.
	Outside nesting.Times `json:"outside"`
	// Message is why the control plane has refused the request.
	Message string `json:"message,omitempty"`
	// Causes are all reasons for which it has, if there are several.
	Causes []fieldError `json:"causes,omitempty"`
	// Body is the body of the response, in a form for people.
	Body string `json:"body,omitempty"`
	// Created is the name of an object that the guided walk has created and deleted, and Left is
	// why it could not delete it.
	Created string `json:"created,omitempty"`
	Left    string `json:"left,omitempty"`
}

// fieldError is what is wrong with a field of an object.
type fieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// show sets the steps of a request, for the page.
func (a *answered) show(steps []trace.Step, hide *hiding) {
	list := make([]step, len(steps))
	times, outside := nesting.Of(steps, a.Took)
	a.Steps, a.Outside = list, outside
	for i, s := range steps {
		list[i] = step{Step: s, Times: times[i]}
		list[i].Reason = hide.values.Hide(s.Reason)
		if s.Patch != nil {
			list[i].Patch, _ = hide.json(s.Patch, false) // it is JSON
		}
		if s.Object == nil {
			continue
		}
		text, err := hide.yaml(s.Object, false)
		if err != nil {
			text = "" // not an object
		}
		list[i].Object = text
	}
}

// idOf returns the number of a request in a path. If it is none, it refuses.
func idOf(w http.ResponseWriter, r *http.Request) (id uint64, ok bool) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("%q is not the number of a request.",
			r.PathValue("id")))
	}
	return id, err == nil
}

// refuseGone says that a request is not kept.
func refuseGone(w http.ResponseWriter, id uint64) {
	refuse(w, http.StatusNotFound, fmt.Sprintf("Request %d is not kept any more. The dashboard "+
		"keeps the steps of the last %d requests that it has shown, or of fewer if they are large, "+
		"while the chain is open.", id, shownRequests))
}

// serveRequest returns one of the latest requests, with its steps.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request) {
	id, ok := idOf(w, r)
	if !ok {
		return
	}
	request, ok := s.live.request(id)
	if !ok {
		refuseGone(w, id)
		return
	}
	client, _ := clientOf(&request)
	a := answered{
		ID: id, Method: request.Method, Path: request.Path, User: request.User, Client: client,
		Code: request.Code, Bytes: request.Bytes, Received: &request.Received, Took: request.Took,
	}
	a.show(request.Steps, new(hiding))
	sendJSON(w, a)
}

// serveRelated returns the requests of the burst that one of the latest belongs to.
func (s *Server) serveRelated(w http.ResponseWriter, r *http.Request) {
	id, ok := idOf(w, r)
	if !ok {
		return
	}
	list, ok := s.live.related(id)
	if !ok {
		refuseGone(w, id)
		return
	}
	sendJSON(w, list)
}
