package dashboard

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
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
	// shownRequests and shownBytes bound how many of those are kept with their steps, and how much
	// memory they take. At the fastest pace, that is the last 12 seconds.
	shownRequests = 1000
	shownBytes    = 24 << 20
	// otherRequests and otherBytes are the bounds of those that are not shown. They are kept
	// because they may belong to the same burst as one that is.
	otherRequests = 2000
	otherBytes    = 8 << 20
	// groupsPerTick bounds the groups of an event. Clients may send any number of methods and
	// paths.
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
	Client   string        `json:"client"` // as clientOf says
	Loop     bool          `json:"loop"`
	Code     int           `json:"code"`
	Bytes    int64         `json:"bytes"`
	Received time.Time     `json:"received"`
	Took     time.Duration `json:"took"` // in nanoseconds
	End      string        `json:"end"`  // one of places
}

func summarize(id uint64, r *trace.Request) summary {
	s := summary{
		ID: id, Method: r.Method, Path: r.Path, User: r.User, Code: r.Code, Bytes: r.Bytes,
		Received: r.Received, Took: r.Took, End: endOf(r.Steps),
	}
	s.Client, s.Loop = clientOf(r)
	return s
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

// counted is a group with the number of its requests and how long they took.
type counted struct {
	group
	Count int `json:"count"`
	// Took is the number of requests by their duration: bucket n has those of up to 2^(n/4)
	// microseconds.
	Took map[int]int `json:"took"`
}

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	return max(0, int(math.Ceil(4*math.Log2(float64(max(d, 1))/float64(time.Microsecond)))))
}

// passed is the event of a tick.
type passed struct {
	Groups   []*counted `json:"groups"`
	Requests []summary  `json:"requests"`
	Dropped  int        `json:"dropped"` // requests that the control plane left out
	Hidden   int        `json:"hidden"`  // requests of control loops that the filter hides
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
	shown    requestRing        // what some watcher has shown
	others   requestRing
	traffic  traffic
}

// watcher is an open page. Its fields are guarded by live.mu.
type watcher struct {
	filter   filter
	groups   map[group]*counted
	requests []summary
	dropped  int
	hidden   int
}

// countLocked counts a request. The caller holds live.mu.
func (w *watcher) countLocked(g group, took time.Duration) {
	if _, ok := w.groups[g]; !ok && len(w.groups) >= groupsPerTick {
		g = otherGroups
	}
	c := w.groups[g]
	if c == nil {
		c = &counted{group: g, Took: map[int]int{}}
		w.groups[g] = c
	}
	c.Count++
	c.Took[bucketOf(took)]++
}

func newLive(config *rest.Config) *live {
	return &live{
		config: config, watchers: map[*watcher]struct{}{},
		shown:  requestRing{most: shownRequests, mostBytes: shownBytes},
		others: requestRing{most: otherRequests, mostBytes: otherBytes},
	}
}

// watch begins to collect the requests that a filter selects, with the latest of those before. The
// first watcher starts the following, and the last one to leave ends it.
func (l *live) watch(f filter) (w *watcher, leave func()) {
	w = &watcher{filter: f, groups: map[group]*counted{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers[w] = struct{}{}
	w.requests = l.latestLocked(f)
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
			l.shown.clear()
			l.others.clear()
			l.traffic = traffic{}
		}
	}
}

// latestLocked returns the latest requests that a filter selects, as many as an event has. The
// caller holds live.mu.
func (l *live) latestLocked(f filter) (list []summary) {
	all := slices.Concat(l.shown.kept, l.others.kept)
	slices.SortFunc(all, func(a, b keptRequest) int { return cmp.Compare(b.id, a.id) })
	for i := 0; i < len(all) && len(list) < shownPerTick; i++ {
		one := summarize(all[i].id, &all[i].Request)
		if f.selects(&all[i].Request, &one) && (!one.Loop || f.loops) {
			list = append(list, one)
		}
	}
	slices.Reverse(list)
	return list
}

// flow returns what the picture of the chain shows.
func (l *live) flow() *flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.traffic.flow(time.Now())
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
	l.traffic.add(&r, time.Now())
	l.latest++
	one := summarize(l.latest, &r)
	shown := false
	for w := range l.watchers {
		w.dropped += r.Dropped
		if !w.filter.selects(&r, &one) {
			continue
		}
		if one.Loop && !w.filter.loops {
			w.hidden++
			continue
		}
		w.countLocked(group, r.Took)
		if len(w.requests) < shownPerTick {
			w.requests = append(w.requests, one)
			shown = true
		}
	}
	if shown {
		l.shown.add(l.latest, r)
	} else {
		l.others.add(l.latest, r)
	}
}

// request returns a request that was shown.
func (l *live) request(id uint64) (trace.Request, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.shown.find(id); ok {
		return r, true
	}
	return l.others.find(id)
}

// related returns the requests of the burst that one of them belongs to.
func (l *live) related(id uint64) (list []related, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Concat(l.shown.kept, l.others.kept)
	slices.SortFunc(all, func(a, b keptRequest) int {
		return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.id, b.id))
	})
	at := slices.IndexFunc(all, func(k keptRequest) bool { return k.id == id })
	if at < 0 {
		return nil, false
	}
	object := objectOf(&all[at].Request)
	requests := burst(all, at)
	for i := range requests {
		k := &requests[i]
		list = append(list, related{
			summary: summarize(k.id, &k.Request), After: k.Received.Sub(requests[0].Received),
			Near: objectOf(&k.Request).near(object),
		})
	}
	return list, true
}

// take returns what has passed since the last call, and why nothing passes.
func (l *live) take(w *watcher) (p passed, failed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range w.groups {
		p.Groups = append(p.Groups, c)
	}
	p.Requests, p.Dropped, p.Hidden = w.requests, w.dropped, w.hidden
	w.requests, w.dropped, w.hidden = nil, 0, 0
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
	filter, err := filterOf(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	watcher, leave := s.live.watch(filter)
	defer leave()
	stream := newStream(w)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	said := ""
	var drawn *flow
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
		if flow := s.live.flow(); flow != drawn {
			if stream.send("flow", flow) != nil {
				return
			}
			drawn = flow
		}
		if len(passed.Groups)+len(passed.Requests)+passed.Dropped+passed.Hidden == 0 {
			continue
		}
		slices.SortFunc(passed.Groups, func(a, b *counted) int { return cmp.Compare(b.Count, a.Count) })
		if stream.send("passed", passed) != nil {
			return
		}
	}
}
