package disturb

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// transport is that of an instance of the controller.
type transport struct {
	session  *Session
	instance *instance
	base     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.send(r)
	if err == nil && response.StatusCode == http.StatusNotFound {
		t.session.notFound(r.URL.Path)
	}
	return response, err
}

func (t *transport) send(r *http.Request) (*http.Response, error) {
	c, r, err := identify(r)
	if err != nil {
		return nil, err
	}
	if r.Header.Get("Upgrade") != "" || c.Subresource == "proxy" || c.Subresource == "log" {
		return t.base.RoundTrip(r)
	}
	if c.Verb == "watch" {
		return t.watch(r, c)
	}
	lock := t.session.isLock(c)
	if lock || beside(c.Resource.Group, c.Resource.Resource) || !c.resource || c.dryRun {
		if t.isDead() {
			return nil, errCrashed
		}
		return t.base.RoundTrip(r)
	}
	active, err := t.session.enter(t.instance, c.Op)
	if err != nil {
		return nil, err
	}
	var response *http.Response
	if c.writes() {
		response, err = t.write(r, c)
	} else {
		response, err = t.read(r, c)
	}
	if dead := t.session.leave(t.instance, active); dead != nil && err == nil {
		response.Body.Close()
		err = dead
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// write forwards a write, and disturbs it if it is due.
func (t *transport) write(r *http.Request, c call) (*http.Response, error) {
	s, plan := t.session, t.session.plan
	due, index := s.record(Entry{Op: c.Op, Caller: caller(), precondition: c.precondition})
	past := ""
	var err error
	exists := true // what somebody else is to change
	switch due {
	case CrashBefore:
		s.saw(index, "not sent")
		return nil, s.crash(t.instance)
	case Conflict, Overwrite:
		if exists, err = s.cluster.touch(r.Context(), c); exists {
			s.note("Somebody else changes %s.", c.key())
		}
	case StaleRestart:
		past, err = s.pastFor(r.Context(), plan)
	}
	if err != nil {
		return nil, err
	}
	if !exists {
		due = None
		s.missed()
	}
	response, _, err := s.forward(t.base, r, c, index)
	if err != nil {
		return nil, err
	}
	if due == CrashAfter || due == StaleRestart || due == LoseAnswer {
		s.saw(index, "no answer")
	}
	switch due {
	case CrashAfter:
		return nil, s.crash(t.instance)
	case StaleRestart:
		s.mu.Lock()
		s.past = past
		s.mu.Unlock()
		return nil, s.crash(t.instance)
	case LoseAnswer:
		return nil, errLost
	case Overwrite:
		if response.StatusCode < 300 {
			err = s.noteLost(r.Context(), c)
		}
	}
	return response, err
}

// forward sends a write, and records whether it has changed something.
func (s *Session) forward(base http.RoundTripper, r *http.Request, c call, index int) (
	*http.Response, body, error,
) {
	before := ""
	if c.Verb == "update" || c.Verb == "patch" {
		var err error
		if before, err = s.cluster.revision(r.Context()); err != nil {
			return nil, body{}, err
		}
	}
	response, data, err := readWhole(base.RoundTrip(r))
	if err != nil {
		return nil, body{}, err
	}
	s.sawAnswer(index, response)
	answer := parse(data)
	version := answer.Metadata.ResourceVersion
	if response.StatusCode < 300 && (before == "" || version == "" || isAfter(version, before)) {
		s.changed(index, response.StatusCode == http.StatusCreated, version)
	}
	return response, answer, nil
}

// isAfter reports whether a resource version is later than a revision.
func isAfter(version, revision string) bool {
	order, err := resourceversion.CompareResourceVersion(version, revision)
	return err != nil || order > 0
}

// noteLost notes a problem if a write has overwritten what somebody else has changed.
func (s *Session) noteLost(ctx context.Context, c call) error {
	lost, err := s.cluster.lost(ctx, c)
	if err != nil || lost == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, overwritten(c.Op, lost))
	return nil
}

// pastFor returns the revision that the next controller is to see at first.
func (s *Session) pastFor(ctx context.Context, plan Disturbance) (string, error) {
	if plan.View == plan.At {
		return s.cluster.revision(ctx)
	}
	if plan.View.Verb == "" {
		return s.cluster.beforeLastChange(ctx, plan.View.Resource)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.views[plan.View]
	if plan.ViewAfter {
		return v.after, nil
	}
	return v.before, nil
}

// read forwards a read. To a list that may come from the server's cache, an instance that sees the
// past gets an earlier state. What must be up to date, is.
func (t *transport) read(r *http.Request, c call) (*http.Response, error) {
	_, index := t.session.record(Entry{Op: c.Op, Caller: caller()})
	past := ""
	if query := r.URL.Query(); c.Verb == "list" && query.Get("resourceVersion") == "0" &&
		t.instance.seesPastOf(c.Resource) {
		t.session.looksBack(t.instance)
		past = t.instance.past
		query.Set("resourceVersion", t.instance.past)
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
		query.Del("limit") // without effect in a cache
		r = r.Clone(r.Context())
		r.URL.RawQuery = query.Encode()
	}
	response, err := whole(t.base.RoundTrip(r))
	if err != nil {
		return nil, err
	}
	if t.session.sawAnswer(index, response); past != "" && response.StatusCode < 300 {
		t.session.saw(index, "the past, revision %s", past)
	}
	return response, nil
}

// sawAnswer records an answer that says that a request failed.
func (s *Session) sawAnswer(index int, response *http.Response) {
	if code := response.StatusCode; code >= 300 {
		s.saw(index, "%d %s", code, http.StatusText(code))
	}
}

// watch forwards a watch. Of an instance that sees the past, it begins when the present does.
func (t *transport) watch(r *http.Request, c call) (*http.Response, error) {
	s, i := t.session, t.instance
	s.mu.Lock()
	i.requests = true
	s.mu.Unlock()
	if t.isDead() {
		return nil, errCrashed
	}
	s.record(Entry{Op: c.Op})
	query := r.URL.Query()
	initial := query.Get("sendInitialEvents") == "true"
	if initial && i.seesPastOf(c.Resource) {
		return refuse(r), nil // the client lists instead, as with a server before 1.32
	}
	plan := s.plan
	hold := (plan.Kind == Coalesced || plan.Kind == Delayed) &&
		plan.At.Resource.GroupResource() == c.Resource.GroupResource()
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(i.ctx, cancel)
	r = r.Clone(ctx)
	if hold || s.Detailed {
		r.Header.Set("Accept", asJSON(r.Header.Get("Accept")))
	}
	response, err := t.base.RoundTrip(r)
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	end := func() { stop(); cancel() }
	switch {
	case response.StatusCode != http.StatusOK:
		response, err = whole(response, nil)
		end()
		return response, err
	case hold:
		response.Body = s.stream(ctx, response.Body, c, initial, end)
	default:
		until := i.present
		if !i.seesPastOf(c.Resource) {
			until = nil
		}
		body := &late{ReadCloser: response.Body, ctx: ctx, until: until, end: end}
		if response.Body = body; s.Detailed {
			response.Body = s.stream(ctx, body, c, initial, end)
		}
	}
	return response, nil
}

// stream returns a watch whose events can be held back, and are in the timeline if that is
// detailed.
func (s *Session) stream(
	ctx context.Context, from io.ReadCloser, c call, initial bool, end func(),
) io.ReadCloser {
	var saw func(string)
	if s.Detailed {
		saw = func(event string) { s.note("The controller sees %s.", event) }
	}
	resource := c.Resource.GroupResource().String()
	return s.held.stream(ctx, from, s.plan, resource, initial, saw, end)
}

// late is a stream that cannot be read before until is closed, unless until is nil.
type late struct {
	io.ReadCloser
	ctx   context.Context
	until chan struct{}
	end   func()
}

// Read implements io.Reader.
func (l *late) Read(p []byte) (int, error) {
	if l.until != nil {
		select {
		case <-l.until:
		case <-l.ctx.Done():
			return 0, l.ctx.Err()
		}
	}
	return l.ReadCloser.Read(p)
}

// Close implements io.Closer.
func (l *late) Close() error {
	l.end()
	return l.ReadCloser.Close()
}

func (t *transport) isDead() bool {
	t.session.mu.Lock()
	defer t.session.mu.Unlock()
	return t.instance.dead
}

// asJSON changes the media types that a client accepts.
func asJSON(accept string) string {
	return strings.ReplaceAll(accept, "application/vnd.kubernetes.protobuf", "application/json")
}

// refuse answers a watch that asks for the present objects first, as a server does that cannot do
// that.
func refuse(r *http.Request) *http.Response {
	status, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonInvalid,
		Code:    http.StatusUnprocessableEntity,
		Message: "sendInitialEvents is not supported while the controller sees an earlier state",
	})
	return &http.Response{
		StatusCode: http.StatusUnprocessableEntity, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(status)),
		ContentLength: int64(len(status)),
	}
}

// whole reads the body of a response, so that the answer is there or lost as one.
func whole(response *http.Response, err error) (*http.Response, error) {
	response, _, err = readWhole(response, err)
	return response, err
}

func readWhole(response *http.Response, err error) (*http.Response, []byte, error) {
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(response.Body)
	if err := firstError(err, response.Body.Close()); err != nil {
		return nil, nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(data))
	return response, data, nil
}

// userTransport is that of the user.
type userTransport struct {
	session *Session
	base    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *userTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, r, err := identify(r)
	if err != nil {
		return nil, err
	}
	if !c.writes() || c.dryRun {
		return t.base.RoundTrip(r)
	}
	s := t.session
	due, index := s.record(Entry{Op: c.Op, By: User, Caller: caller()})
	var v view
	if s.holds() {
		s.held.hold()
	}
	if due == Missed {
		s.down(r.Context())
	}
	if s.plan.Kind == StaleRestart {
		if v.before, err = s.cluster.revision(r.Context()); err != nil {
			return nil, err
		}
	}
	response, answer, err := s.forward(t.base, r, c, index)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	op := s.trace[index].Op
	s.mu.Unlock()
	if s.plan.Until == op {
		s.comeBack()
	}
	if s.plan.Kind != StaleRestart {
		return response, nil
	}
	// An answer to a deletion may have no object. Then the controller may have changed something
	// too.
	if v.after = answer.Metadata.ResourceVersion; v.after == "" {
		if v.after, err = s.cluster.revision(r.Context()); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[op] = v
	return response, nil
}
