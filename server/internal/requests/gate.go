package requests

import (
	"context"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kinproc/kinproc/server/internal/requests/epoch"
	"github.com/kinproc/kinproc/server/internal/requests/loopback"
)

// Gate holds requests while the control plane is reset. At first, it holds those that write, and
// waits for the ones that have already begun; reads pass, because admission and webhooks may read
// through the API. Then it holds everything that begins, and waits for the reads. Long-running
// requests that have begun go on. It does not wait for clients: see passage.
//
// The server's own requests pass, because other requests and the caches wait for them. But once the
// gate is closed, none of them may write, and none may follow from what a control loop knew before
// the reset. These are refused instead of held, so that the loops look again.
type Gate struct {
	// Epochs counts the resets.
	Epochs epoch.Counter

	mu     sync.Mutex
	state  gateState
	opened chan struct{} // closed when the gate opens again
	// running counts the requests that are running, and older those of them that began before
	// generation. When a counter drops to 0, drained gets a value.
	running    [2]int
	older      int
	generation int
	drained    chan struct{}
}

type gateState int

const (
	gateOpen     gateState = iota
	gateDraining           // requests that write are held
	gateClosed
)

// traffic is what the gate distinguishes.
type traffic int

const (
	reading traffic = iota
	writing
	lasting // not counted
)

func trafficOf(c Class) traffic {
	switch c {
	case Write:
		return writing
	case LongRunning, Snapshot: // a reset must not wait for itself, nor for a slow download
		return lasting
	default:
		return reading
	}
}

func newGate() *Gate { return &Gate{drained: make(chan struct{}, 1)} }

// serve passes a request on to next as the gate permits. The gate neither holds nor counts requests
// that an extension API server answers, because that server may call back.
func (g *Gate) serve(w http.ResponseWriter, r *http.Request, facts *Facts, next http.Handler) {
	if facts.Proxied {
		next.ServeHTTP(w, r)
		return
	}
	kind := trafficOf(facts.Class)
	generation, err := g.enter(r.Context(), kind)
	if err != nil {
		responsewriters.ErrorNegotiated(err, clientscheme.Codecs, schema.GroupVersion{}, w, r)
		return
	}
	switch {
	case kind == lasting:
		next.ServeHTTP(w, r)
	case loopback.IsOwn(r.Context()):
		defer g.leave(kind, generation)
		next.ServeHTTP(w, r)
	default:
		p := &passage{gate: g, kind: kind, generation: generation, begun: g.Epochs.Now(), inside: true}
		defer p.end()
		next.ServeHTTP(p.response(w), p.request(r))
	}
}

var (
	errResetting = resetError("the control plane is being reset; read the present state and retry")
	errWasReset  = resetError("the control plane was reset; read the present state and retry")
)

func resetError(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
		Message: message,
	}}
}

// enter waits until a request may begin, and counts it unless it is long-running.
func (g *Gate) enter(ctx context.Context, kind traffic) (generation int, err error) {
	own, stamp := loopback.IsOwn(ctx), epoch.Of(ctx)
	for {
		g.mu.Lock()
		if stamp.Stale() {
			g.mu.Unlock()
			return 0, errWasReset
		}
		var hold bool
		switch {
		case own && g.state == gateClosed && (kind == writing || stamp != nil):
			g.mu.Unlock()
			return 0, errResetting
		case own:
		case kind == writing:
			hold = g.state != gateOpen
		default:
			hold = g.state == gateClosed
		}
		if !hold {
			if kind != lasting {
				g.running[kind]++
			}
			generation := g.generation
			g.mu.Unlock()
			return generation, nil
		}
		opened := g.opened
		g.mu.Unlock()
		select {
		case <-opened:
		case <-ctx.Done():
			return 0, apierrors.NewTimeoutError("the control plane is being reset", 1)
		}
	}
}

func (g *Gate) leave(kind traffic, generation int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[kind]--
	ended := g.state != gateOpen && g.running[kind] == 0
	if generation < g.generation {
		g.older--
		ended = ended || g.older == 0
	}
	if ended {
		select {
		case g.drained <- struct{}{}:
		default:
		}
	}
}

// firstPatience is how long Close holds requests at first. It is much longer than requests take,
// except those that wait for something outside the control plane.
const firstPatience = 250 * time.Millisecond

// Close closes the gate and waits for the requests that have begun. One of them may wait for a
// request that is held, for instance if the webhook that is to admit it writes through the API. So
// if the wait takes long, Close opens the gate until the requests that it waited for have ended,
// and tries again, with more patience. If ctx ends early, the gate is open again.
func (g *Gate) Close(ctx context.Context) error {
	for patience := firstPatience; ; patience *= 2 {
		attempt, cancel := context.WithTimeout(ctx, patience)
		closed := g.tryClose(attempt)
		cancel()
		if closed {
			return nil
		}
		if err := g.awaitOlder(ctx); err != nil {
			return err
		}
	}
}

// tryClose closes the gate and waits for the requests that have begun. If ctx ends early, the gate
// is open again, and these requests are the older ones.
func (g *Gate) tryClose(ctx context.Context) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state, g.opened = gateDraining, make(chan struct{})
	for g.running[writing] > 0 || g.state != gateClosed || g.running[reading] > 0 {
		if g.running[writing] == 0 && g.state == gateDraining {
			g.state = gateClosed
			continue
		}
		if g.waitLocked(ctx) != nil {
			g.generation++
			g.older = g.running[writing] + g.running[reading]
			g.openLocked()
			return false
		}
	}
	return true
}

// awaitOlder waits for the older requests.
func (g *Gate) awaitOlder(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.older > 0 {
		if err := g.waitLocked(ctx); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// waitLocked waits until a counter drops to 0. It unlocks mu meanwhile.
func (g *Gate) waitLocked(ctx context.Context) error {
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-g.drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Open lets the held requests pass.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.openLocked()
}

func (g *Gate) openLocked() {
	g.state = gateOpen
	close(g.opened)
}
