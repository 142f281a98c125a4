package disturb

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// transport is that of an instance of the controller.
type transport struct {
	session  *Session
	instance *instance
	base     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
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
	if due {
		switch plan.Kind {
		case CrashBefore:
			return nil, s.crash(t.instance)
		case Conflict:
			err = s.cluster.touch(r.Context(), c.Op)
		case StaleRestart:
			past, err = s.pastFor(r.Context(), plan)
		}
		if err != nil {
			return nil, err
		}
	}
	response, err := whole(t.base.RoundTrip(r))
	if err != nil {
		return nil, err
	}
	s.answered(index, response.StatusCode >= 300)
	if due {
		switch plan.Kind {
		case CrashAfter:
			return nil, s.crash(t.instance)
		case StaleRestart:
			s.mu.Lock()
			s.past = past
			s.mu.Unlock()
			return nil, s.crash(t.instance)
		case LostAnswer:
			return nil, errLost
		}
	}
	return response, nil
}

// pastFor returns the revision that the next controller is to see at first.
func (s *Session) pastFor(ctx context.Context, plan Disturbance) (string, error) {
	if plan.View == plan.At {
		return s.cluster.revision(ctx)
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
	t.session.record(Entry{Op: c.Op, Caller: caller()})
	if query := r.URL.Query(); c.Verb == "list" && query.Get("resourceVersion") == "0" &&
		t.instance.seesPastOf(c.Resource) {
		t.session.looksBack(t.instance)
		query.Set("resourceVersion", t.instance.past)
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
		query.Del("limit") // without effect in a cache
		r = r.Clone(r.Context())
		r.URL.RawQuery = query.Encode()
	}
	return whole(t.base.RoundTrip(r))
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
	if hold {
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
		response.Body = s.held.stream(ctx, response.Body, plan, initial, end)
	default:
		until := i.present
		if !i.seesPastOf(c.Resource) {
			until = nil
		}
		response.Body = &late{ReadCloser: response.Body, ctx: ctx, until: until, end: end}
	}
	return response, nil
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
	due, index := s.record(Entry{Op: c.Op, User: true, Caller: caller()})
	var v view
	if s.plan.Kind == Coalesced || s.plan.Kind == Delayed {
		s.held.hold()
	}
	if due {
		s.down(r.Context())
	}
	if s.plan.Kind == StaleRestart {
		if v.before, err = s.cluster.revision(r.Context()); err != nil {
			return nil, err
		}
	}
	response, data, err := readWhole(t.base.RoundTrip(r))
	if err != nil {
		return nil, err
	}
	s.answered(index, response.StatusCode >= 300)
	if s.plan.Kind != StaleRestart {
		return response, nil
	}
	// An answer to a deletion may have no object. Then the controller may have changed something too.
	if v.after = parse(data).Metadata.ResourceVersion; v.after == "" {
		if v.after, err = s.cluster.revision(r.Context()); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[s.trace[index].Op] = v
	return response, nil
}
