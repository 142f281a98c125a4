package chain

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/chain/internal/tracer"
)

const (
	// streamsOfUser and streamsOfAll are how many streams there may be at once, of a user and in
	// all. A stream takes less than 200 KB.
	streamsOfUser = 100
	streamsOfAll  = 1000
	// streamRetry is when a client may try again, in seconds.
	streamRetry = 1
)

// streams bounds the long-running requests that priority and fairness does not look at: exec,
// attach, port-forward, logs, proxies, and those who follow a history or all requests. Each holds
// buffers for as long as its client likes. Watches have passed priority and fairness.
type streams struct {
	mu sync.Mutex
	// Administrators, who run the tests of a control plane, need more than other users. They have
	// streams of their own, so that nobody can keep them out.
	ordinary, admins pool
}

// pool are streams that share a limit.
type pool struct {
	ofUser, ofAll int // the limits
	all           int
	users         map[string]int
}

func newStreams() *streams {
	return &streams{
		ordinary: pool{ofUser: streamsOfUser, ofAll: streamsOfAll, users: map[string]int{}},
		admins:   pool{ofUser: streamsOfAll, ofAll: streamsOfAll, users: map[string]int{}},
	}
}

// begin counts a stream of a user, until the function that it returns is called, or says why there
// may be none.
func (s *streams) begin(who user.Info) (end func(), refusal string) {
	p, name := &s.ordinary, who.GetName()
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		p = &s.admins
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	const streams = "long-running requests (exec, attach, port-forward, logs, proxies, follow)"
	switch {
	case p.users[name] >= p.ofUser:
		return nil, fmt.Sprintf("user %q has %d %s open at once, which is the limit for each user: end "+
			"some of them, or try again when one has ended", name, p.ofUser, streams)
	case p.all >= p.ofAll:
		return nil, fmt.Sprintf("%d %s are open at once, which is the limit for all users: try again "+
			"when one has ended", p.ofAll, streams)
	}
	p.all++
	p.users[name]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.all--
		if p.users[name]--; p.users[name] == 0 {
			delete(p.users, name)
		}
	}, ""
}

// filter passes a stream on if there may be one more. The user is the one that others impersonate.
func (s *streams) filter(
	handler http.Handler, longRunning genericapirequest.LongRunningRequestCheck,
	serializer runtime.NegotiatedSerializer,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		info, _ := genericapirequest.RequestInfoFrom(ctx)
		who, ok := genericapirequest.UserFrom(ctx)
		if !ok || !longRunning(r, info) || isWatch(r, info) {
			handler.ServeHTTP(w, r)
			return
		}
		end, refusal := s.begin(who)
		if end == nil {
			if t := tracer.From(ctx); t != nil {
				t.Begin("flow control")("refused", refusal)
			}
			responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests(refusal, streamRetry), serializer,
				schema.GroupVersion{}, w, r)
			return
		}
		defer end()
		handler.ServeHTTP(w, r)
	})
}

// isWatch reports whether a request is a watch. Those who follow a history watch too, in words.
func isWatch(r *http.Request, info *genericapirequest.RequestInfo) bool {
	return info != nil && info.Verb == "watch" && !strings.HasPrefix(r.URL.Path, history.Path+"/")
}
