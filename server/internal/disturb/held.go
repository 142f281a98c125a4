package disturb

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// held is what watches do not show yet.
type held struct {
	mu      sync.Mutex
	holding bool
	some    bool // something has been held back
	streams map[*stream]bool
}

// hold begins to hold back events, until the next release. The events of what the controller does
// after that are not held back, because it may repeat a write until it sees it.
func (h *held) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holding = true
}

// release shows what has been held back. It reports whether that was anything, and returns a text
// for each event that it shows.
func (h *held) release() (some bool, shown []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holding = false
	for s := range h.streams {
		if len(s.events) > 0 {
			some = true
			shown = append(shown, s.flushLocked()...)
		}
	}
	return some, shown
}

// shown reports whether something has been held back.
func (h *held) shown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.some
}

// stream is a watch, some of whose events are held back.
type stream struct {
	held     *held
	coalesce bool
	at       Op // the object whose events are held back; without a name, all are
	resource string
	saw      func(string)

	initial bool // the objects that exist are being sent
	events  []event
	ready   []byte // what can be read
	changed chan struct{}
	err     error
}

// event is an event of a watch.
type event struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

// about returns text such as "MODIFIED configmaps default/limits".
func (e event) about(resource string) string {
	var object metav1.PartialObjectMetadata
	_ = json.Unmarshal(e.Object, &object) // what is no object has no name
	return join(" ", string(e.Type), resource, join("/", object.Namespace, object.Name))
}

// stream returns the body of a watch of a resource, which calls end when it is closed. It calls
// saw, unless that is nil, with a text for each event that is not held back.
func (h *held) stream(
	ctx context.Context, from io.ReadCloser, plan Disturbance, resource string, initial bool,
	saw func(string), end func(),
) io.ReadCloser {
	s := &stream{
		held: h, coalesce: plan.Kind == Coalesced, at: plan.At, resource: resource, initial: initial,
		saw: saw, changed: make(chan struct{}, 1),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == nil {
		h.streams = map[*stream]bool{}
	}
	h.streams[s] = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.receive(from)
	}()
	return &reader{stream: s, ctx: ctx, close: func() error {
		end()
		err := from.Close()
		<-done
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.streams, s)
		return err
	}}
}

// receive reads the events until the watch ends.
func (s *stream) receive(from io.Reader) {
	decoder := json.NewDecoder(from)
	for {
		var e event
		err := decoder.Decode(&e)
		s.held.mu.Lock()
		if err != nil {
			s.err = err
			s.notifyLocked()
			s.held.mu.Unlock()
			return
		}
		s.addLocked(e)
		s.held.mu.Unlock()
	}
}

func (s *stream) addLocked(e event) {
	var object metav1.PartialObjectMetadata
	_ = json.Unmarshal(e.Object, &object) // what is no object has no name
	bookmark := e.Type == watch.Bookmark
	if bookmark && object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		s.initial = false
	}
	concerned := s.resource == s.at.Resource.GroupResource().String() && (s.at.Name == "" ||
		s.at.Name == canonical(object.Name) && s.at.Namespace == object.Namespace)
	switch {
	case !s.held.holding || s.initial || e.Type == watch.Error:
	case bookmark:
		if len(s.events) > 0 {
			return
		}
	case concerned:
		s.events = append(s.events, e)
		s.held.some = true
		return
	}
	s.showLocked(e)
	if s.saw != nil && !s.initial && !bookmark {
		s.saw(e.about(s.resource))
	}
}

// flushLocked shows the events that have been held back, and returns a text for each that it shows.
func (s *stream) flushLocked() (shown []string) {
	events, merged := s.events, ""
	if n := len(events); s.coalesce && n > 1 {
		events, merged = last(events), fmt.Sprintf(", the last of %d", n)
	}
	for _, e := range events {
		shown = append(shown, e.about(s.resource)+merged)
		s.showLocked(e)
	}
	s.events = nil
	return shown
}

// last returns the event that remains of several ones of an object.
func last(events []event) []event {
	first, e := events[0], events[len(events)-1]
	switch {
	case first.Type == watch.Added && e.Type == watch.Deleted:
		return nil
	case first.Type == watch.Added:
		e.Type = watch.Added
	case e.Type == watch.Added:
		e.Type = watch.Modified // deleted and created again
	}
	return []event{e}
}

func (s *stream) showLocked(e event) {
	data, err := json.Marshal(e)
	if err != nil {
		s.err = err
	}
	s.ready = append(append(s.ready, data...), '\n')
	s.notifyLocked()
}

func (s *stream) notifyLocked() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// reader reads a stream.
type reader struct {
	stream *stream
	ctx    context.Context
	close  func() error
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	s := r.stream
	for {
		s.held.mu.Lock()
		if len(s.ready) > 0 {
			n := copy(p, s.ready)
			s.ready = s.ready[n:]
			s.held.mu.Unlock()
			return n, nil
		}
		err := s.err
		s.held.mu.Unlock()
		if err != nil {
			return 0, err
		}
		select {
		case <-s.changed:
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
}

// Close implements io.Closer.
func (r *reader) Close() error { return r.close() }
