package tracer

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/kinproc/kinproc/chain/trace"
)

// Followers are the clients that follow all requests. Create them with [NewFollowers].
type Followers struct {
	serializer runtime.NegotiatedSerializer
	count      atomic.Int32 // of all, so that requests need no lock if there are none

	mu      sync.Mutex
	all     map[*follower]struct{}
	stopped chan struct{}
	stop    sync.Once
}

// follower is a client that follows requests.
type follower struct {
	trace.FollowOptions
	requests chan trace.Request
	waiting  atomic.Int64 // the bytes of the requests that wait
	dropped  atomic.Int64
}

// backlog is how many requests may wait for a client, and backlogBytes their size for all clients.
// If none waits, there is room for one of any size.
const (
	backlog      = 1024
	backlogBytes = 16 << 20
)

// NewFollowers returns no followers. The serializer is for errors.
func NewFollowers(serializer runtime.NegotiatedSerializer) *Followers {
	return &Followers{
		serializer: serializer, all: map[*follower]struct{}{}, stopped: make(chan struct{}),
	}
}

// Stop ends the streams to all followers.
func (f *Followers) Stop() { f.stop.Do(func() { close(f.stopped) }) }

// ServeHTTP streams requests to a client that follows them.
func (f *Followers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, err := trace.ParseFollowOptions(r.URL.Query())
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		err = apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method,
			schema.GroupResource{}, "", "only GET is allowed", 0, false)
	case err != nil:
		err = apierrors.NewBadRequest(err.Error())
	}
	if err != nil {
		responsewriters.ErrorNegotiated(err, f.serializer, schema.GroupVersion{}, w, r)
		return
	}
	own := &follower{FollowOptions: options, requests: make(chan trace.Request, backlog)}
	f.add(own)
	defer f.remove(own)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return
	}
	for encoder := json.NewEncoder(w); ; {
		select {
		case <-r.Context().Done():
			return
		case <-f.stopped:
			return
		case request := <-own.requests:
			err := encoder.Encode(request)
			own.waiting.Add(-int64(request.Size()))
			if err != nil || len(own.requests) == 0 && flush() != nil {
				return
			}
		}
	}
}

func (f *Followers) add(own *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[own] = struct{}{}
	f.count.Store(int32(len(f.all)))
}

func (f *Followers) remove(own *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, own)
	f.count.Store(int32(len(f.all)))
}

// want reports whether anybody follows requests like r, and whether their objects are wanted too.
// Nobody follows the requests of followers.
func (f *Followers) want(r *http.Request) (wanted, objects bool) {
	if f.count.Load() == 0 || r.URL.Path == trace.FollowPath {
		return false, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for own := range f.all {
		if own.Method != "" && own.Method != r.Method ||
			!strings.HasPrefix(r.URL.Path, own.PathPrefix) {
			continue
		}
		wanted, objects = true, objects || own.Objects
	}
	return wanted, objects
}

// report sends a request to those who follow it.
func (f *Followers) report(path string, request trace.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for own := range f.all {
		if own.Method != "" && own.Method != request.Method ||
			own.User != "" && own.User != request.User || !strings.HasPrefix(path, own.PathPrefix) {
			continue
		}
		mine := request
		if !own.Objects {
			mine.Steps = withoutObjects(mine.Steps)
		}
		own.offer(mine, backlogBytes/int64(len(f.all)))
	}
}

// offer lets a request wait for the client, or drops it if the client reads too slowly and more
// bytes than most would wait. Only one goroutine at a time may call it.
func (f *follower) offer(request trace.Request, most int64) {
	n := int64(request.Size())
	if waiting := f.waiting.Load(); waiting > 0 && waiting+n > most {
		f.dropped.Add(1)
		return
	}
	dropped := f.dropped.Swap(0)
	request.Dropped = int(dropped)
	f.waiting.Add(n)
	select {
	case f.requests <- request:
	default:
		f.waiting.Add(-n)
		f.dropped.Add(dropped + 1)
	}
}

func withoutObjects(steps []trace.Step) []trace.Step {
	without := make([]trace.Step, len(steps))
	for i, s := range steps {
		s.Object = nil
		without[i] = s
	}
	return without
}

// WithTrace is the outermost filter. It adds a trace to requests that ask for one or that somebody
// follows.
func (f *Followers) WithTrace(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Header.Get(trace.Header)
		followed, objects := f.want(r)
		if asked == "" && !followed {
			handler.ServeHTTP(w, r)
			return
		}
		t := &Trace{began: time.Now(), asked: asked, followed: followed, objects: objects}
		r = r.WithContext(context.WithValue(r.Context(), contextKey{}, t))
		if followed {
			answer := &answer{ResponseWriter: w, followers: f, request: r, trace: t}
			defer answer.report()
			w = responsewriter.WrapForHTTP1Or2(answer)
		}
		if asked == "" {
			handler.ServeHTTP(w, r)
			return
		}
		// an extension API server may be a kinproc too, and would add a trailer with its own trace
		r.Header.Del(trace.Header)
		w.Header().Set("Trailer", trace.Header)
		handler.ServeHTTP(w, r)
		if steps := t.trailer(r); steps != "" {
			w.Header().Set(trace.Header, steps)
		}
	})
}

// answer notes what the response to a followed request is.
type answer struct {
	http.ResponseWriter
	followers *Followers
	request   *http.Request
	trace     *Trace
	code      int
	bytes     int64
	reported  sync.Once
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
	if a.trace.watches() {
		a.report()
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(data []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(data)
	a.bytes += int64(n)
	return n, err
}

// maxUserAgent bounds how much of a user agent is reported.
const maxUserAgent = 256

// beginning returns as much of a user agent as is reported.
func beginning(agent string) string {
	if len(agent) > maxUserAgent {
		agent = agent[:maxUserAgent]
	}
	return strings.ToValidUTF8(agent, "")
}

// report reports the request to its followers, once.
func (a *answer) report() {
	a.reported.Do(func() {
		code := a.code
		switch {
		case code == 0 && httpstream.IsUpgradeRequest(a.request):
			code = http.StatusSwitchingProtocols
		case code == 0:
			code = http.StatusOK
		}
		t := a.trace
		request := trace.Request{
			Method: a.request.Method, Path: a.request.URL.RequestURI(), Code: code, Bytes: a.bytes,
			UserAgent: beginning(a.request.UserAgent()),
			Received:  t.began, Took: time.Since(t.began), Steps: t.sorted(),
		}
		request.User, request.Verb, request.Resource = t.identity()
		a.followers.report(a.request.URL.Path, request)
	})
}

// watches reports whether the request is a watch.
func (t *Trace) watches() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.info != nil && t.info.Verb == "watch"
}

// identity returns who sent the request and what it is for.
func (t *Trace) identity() (user, verb, resource string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.info == nil {
		return t.user, "", ""
	}
	if t.info.IsResourceRequest {
		resource = t.info.Resource
		if t.info.APIGroup != "" {
			resource += "." + t.info.APIGroup
		}
		if t.info.Subresource != "" {
			resource += "/" + t.info.Subresource
		}
	}
	return t.user, t.info.Verb, resource
}
