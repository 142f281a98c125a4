package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/trace"
)

const (
	// tick is the time between two events of the live stream. Within it, requests are grouped.
	tick = 250 * time.Millisecond
	// shownPerTick bounds how many requests an event has one by one. The groups count all.
	shownPerTick = 20
	// keptRequests bounds how many of those are kept with their steps. At the fastest pace, that is
	// the last 12 seconds.
	keptRequests = 1000
	// keptBytes bounds how much memory they take, except for the latest.
	keptBytes = 32 << 20
	// groupsPerTick bounds the groups of an event. Clients may send any number of methods and paths.
	groupsPerTick = 500
	// followAgain is the time before another attempt to follow the requests.
	followAgain = 2 * time.Second
)

// The places at which a request can end, in the order in which it passes them.
var places = []string{
	"authentication", "flow control", "authorization",
	"aggregator", "core", "extensions", "not found",
}

// summary is a request in a list.
type summary struct {
	ID       uint64        `json:"id"`
	Method   string        `json:"method"`
	Path     string        `json:"path"`
	User     string        `json:"user"`
	Code     int           `json:"code"`
	Bytes    int64         `json:"bytes"`
	Received time.Time     `json:"received"`
	Took     time.Duration `json:"took"` // in nanoseconds
	End      string        `json:"end"`  // one of places
}

// group is what the page counts requests by.
type group struct {
	End      string `json:"end"` // one of places
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	Class    int    `json:"class"` // the first digit of the status code
}

// otherGroups counts the requests of an event that has too many groups.
var otherGroups = group{End: places[0], Verb: "other", Resource: "other"}

// counted is a group with the number of its requests.
type counted struct {
	group
	Count int `json:"count"`
}

// passed is the event of a tick.
type passed struct {
	Groups   []counted `json:"groups"`
	Requests []summary `json:"requests"`
	Dropped  int       `json:"dropped"` // requests that the control plane left out
}

// filter selects requests. Empty fields select all. A user that begins with - selects the others.
type filter struct{ method, path, user string }

func (f filter) selects(r *trace.Request) bool {
	if f.method != "" && !strings.EqualFold(f.method, r.Method) || !strings.Contains(r.Path, f.path) {
		return false
	}
	if other, not := strings.CutPrefix(f.user, "-"); not {
		return other == "" || !strings.Contains(r.User, other)
	}
	return strings.Contains(r.User, f.user)
}

// live follows the requests of the control plane while somebody watches them.
type live struct {
	config  *rest.Config
	running sync.WaitGroup

	mu       sync.Mutex
	watchers map[*watcher]struct{}
	stop     context.CancelFunc // ends the following; nil if there is none
	failed   string             // why there is no following
	latest   uint64             // the ID of the latest request
	kept     []keptRequest      // oldest first
	bytes    int                // of the kept requests
}

// keptRequest is a request with the memory that it takes.
type keptRequest struct {
	id    uint64
	bytes int
	trace.Request
}

// watcher is an open page. Its fields are guarded by live.mu.
type watcher struct {
	filter   filter
	groups   map[group]int
	requests []summary
	dropped  int
}

func newLive(config *rest.Config) *live {
	return &live{config: config, watchers: map[*watcher]struct{}{}}
}

// watch begins to collect the requests that a filter selects. The first watcher starts the
// following, and the last one to leave ends it.
func (l *live) watch(f filter) (w *watcher, leave func()) {
	w = &watcher{filter: f, groups: map[group]int{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers[w] = struct{}{}
	if l.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		l.stop = cancel
		l.running.Go(func() { l.follow(ctx) })
	}
	return w, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.watchers, w); len(l.watchers) == 0 {
			l.stop()
			l.stop, l.failed = nil, ""
			l.kept, l.bytes = nil, 0
		}
	}
}

// wait waits until no request is followed, after all watchers have left.
func (l *live) wait() { l.running.Wait() }

// follow follows the requests until ctx ends.
func (l *live) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := trace.Follow(ctx, l.config, trace.FollowOptions{Objects: true}, func(r trace.Request) {
			l.add(ctx, r)
		})
		l.mu.Lock()
		if ctx.Err() == nil {
			l.failed = "The control plane has ended the stream of requests."
			if err != nil {
				l.failed = "Requests cannot be shown: " + err.Error()
			}
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// add gives a request to the watchers that it concerns.
func (l *live) add(ctx context.Context, r trace.Request) {
	group := groupOf(&r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	l.failed = ""
	l.latest++
	for w := range l.watchers {
		w.dropped += r.Dropped
		if !w.filter.selects(&r) {
			continue
		}
		if _, ok := w.groups[group]; !ok && len(w.groups) >= groupsPerTick {
			w.groups[otherGroups]++
			continue
		}
		w.groups[group]++
		if len(w.requests) == shownPerTick {
			continue
		}
		w.requests = append(w.requests, summary{
			ID: l.latest, Method: r.Method, Path: r.Path, User: r.User, Code: r.Code, Bytes: r.Bytes,
			Received: r.Received, Took: r.Took, End: group.End,
		})
		l.keepLocked(l.latest, r)
	}
}

// keepLocked keeps a request for those who want to see its steps. The caller holds mu.
func (l *live) keepLocked(id uint64, r trace.Request) {
	if n := len(l.kept); n > 0 && l.kept[n-1].id == id {
		return
	}
	l.kept = append(l.kept, keptRequest{id, r.Size(), r})
	l.bytes += l.kept[len(l.kept)-1].bytes
	for len(l.kept) > 1 && (len(l.kept) > keptRequests || l.bytes > keptBytes) {
		l.bytes -= l.kept[0].bytes
		l.kept[0] = keptRequest{}
		l.kept = l.kept[1:]
	}
}

// request returns a request that was shown.
func (l *live) request(id uint64) (trace.Request, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := slices.BinarySearchFunc(l.kept, id, func(k keptRequest, id uint64) int {
		return cmp.Compare(k.id, id)
	})
	if !ok {
		return trace.Request{}, false
	}
	return l.kept[at].Request, true
}

// take returns what has passed since the last call, and why nothing passes.
func (l *live) take(w *watcher) (p passed, failed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, n := range w.groups {
		p.Groups = append(p.Groups, counted{g, n})
	}
	p.Requests, p.Dropped = w.requests, w.dropped
	w.requests, w.dropped = nil, 0
	clear(w.groups)
	return p, l.failed
}

// groupOf returns the group of a request.
func groupOf(r *trace.Request) group {
	g := group{endOf(r.Steps), r.Verb, r.Resource, r.Code / 100}
	if g.Verb == "" { // it was refused before it was authorized
		g.Verb = strings.ToLower(r.Method)
	}
	if g.Resource == "" {
		// Of other paths there may be any number.
		first, _, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
		first, _, _ = strings.Cut(first, "?")
		g.Resource = "/" + first
	}
	return g
}

// endOf returns the last place that a request reached.
func endOf(steps []trace.Step) string {
	last := 0
	for _, step := range steps {
		last = max(last, slices.Index(places, step.At))
	}
	return places[last]
}

// serveLive streams the requests that pass through the chain.
func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	watcher, leave := s.live.watch(filter{
		method: q.Get("method"), path: q.Get("path"), user: q.Get("user"),
	})
	defer leave()
	stream := newStream(w)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	said := ""
	for {
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
		passed, failed := s.live.take(watcher)
		if failed != said {
			if stream.send("failed", failed) != nil {
				return
			}
			said = failed
		}
		if len(passed.Groups) == 0 && passed.Dropped == 0 {
			continue
		}
		slices.SortFunc(passed.Groups, func(a, b counted) int { return cmp.Compare(b.Count, a.Count) })
		if stream.send("passed", passed) != nil {
			return
		}
	}
}

// step is a step of a trace, with the object as YAML.
type step struct {
	trace.Step
	Object string `json:"object,omitempty"`
}

// answered is a request with its steps.
type answered struct {
	Method string        `json:"method"`
	Path   string        `json:"path"`
	User   string        `json:"user,omitempty"`
	Code   int           `json:"code"`
	Bytes  int64         `json:"bytes"`
	Took   time.Duration `json:"took"` // in nanoseconds
	Steps  []step        `json:"steps"`
	// Body is the body of the response, in a form for people.
	Body string `json:"body,omitempty"`
	// Created is the name of an object that the guided walk has created.
	Created string `json:"created,omitempty"`
}

// shown returns steps for the page.
func shown(steps []trace.Step) []step {
	list := make([]step, len(steps))
	for i, s := range steps {
		list[i] = step{Step: s}
		if s.Patch != nil {
			list[i].Patch, _ = redactJSON(s.Patch, false) // it is JSON
		}
		if s.Object == nil {
			continue
		}
		text, err := redactYAML(s.Object, false)
		if err != nil {
			text = "" // not an object
		}
		list[i].Object = text
	}
	return list
}

// serveRequest returns one of the latest requests, with its steps.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("%q is not the number of a request.",
			r.PathValue("id")))
		return
	}
	request, ok := s.live.request(id)
	if !ok {
		refuse(w, http.StatusNotFound, fmt.Sprintf("Request %d is not kept any more. The dashboard "+
			"keeps the steps of the last %d requests that it has shown, or of fewer if they are large, "+
			"while a page is open.", id, keptRequests))
		return
	}
	sendJSON(w, answered{
		Method: request.Method, Path: request.Path, User: request.User, Code: request.Code,
		Bytes: request.Bytes, Took: request.Took, Steps: shown(request.Steps),
	})
}
