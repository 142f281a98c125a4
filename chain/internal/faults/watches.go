package faults

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/kinproc/kinproc/chain/internal/effect"
	"github.com/kinproc/kinproc/chain/internal/etcdstore"
)

// mayWatch reports whether a request may be a watch, by less than its request info.
func mayWatch(r *http.Request) bool {
	return r.Method == http.MethodGet &&
		(strings.Contains(r.URL.RawQuery, "watch") || strings.Contains(r.URL.Path, "/watch/"))
}

// watching is a watch that is running.
type watching struct {
	number  int // later ones have higher numbers
	request request
	cancel  context.CancelFunc
	held    *heldResponse

	mu     sync.Mutex
	ending *injected // the fault that has ended it
}

func (w *watching) compare(other *watching) int { return cmp.Compare(w.number, other.number) }

// disturbsRunning reports whether a fault hits watches that are running. The others wait until the
// next watch begins.
func (one *injected) disturbsRunning() bool {
	switch one.effect().Type {
	case effect.EndWatch, effect.BreakWatch, effect.ExpireWatch, effect.HoldWatch, effect.Freeze,
		effect.Lag, effect.Cut:
		return true
	}
	return false
}

// disturb lets a fault hit the watch.
func (w *watching) disturb(one *injected) {
	switch one.effect().Type {
	case effect.HoldWatch, effect.Freeze:
		w.held.hold(one.released)
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ending == nil {
			w.ending = one
			w.cancel()
		}
	}
}

// watch serves a watch.
func (f *Faults) watch(
	handler http.Handler, w http.ResponseWriter, r *http.Request, about request,
) {
	ctx, cancel := context.WithCancel(r.Context())
	held := &heldResponse{ResponseWriter: w, done: ctx.Done()}
	held.change.L = &held.mu
	defer held.holding.Wait()
	defer cancel()
	running := &watching{request: about, cancel: cancel, held: held}
	one := f.begin(running)
	defer f.forget(running)
	if one != nil {
		note(r, one)
		switch one.effect().Type {
		case effect.HoldWatch:
			held.hold(one.released)
		case effect.Freeze, effect.Lag:
			ctx = etcdstore.WithView(ctx, one.view())
		case effect.EndWatch, effect.BreakWatch:
			held.begun = func() { running.disturb(one) }
		case effect.Delay:
			one.delay(ctx)
		case effect.LoseAnswer: // a watch has no other effect than its answer
			panic(http.ErrAbortHandler)
		default:
			f.disturb(handler, w, r.WithContext(ctx), &about, one)
			return
		}
	}
	handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(held), r.WithContext(ctx))
	running.mu.Lock()
	ending := running.ending
	running.mu.Unlock()
	if ending == nil {
		return
	}
	if ending != one {
		note(r, ending)
	}
	switch ending.effect().Type {
	case effect.EndWatch, effect.Lag:
	case effect.ExpireWatch:
		f.sendExpired(w)
	default:
		panic(http.ErrAbortHandler)
	}
}

// begin adds a watch to those that are running, and returns the fault that hits it, or nil.
func (f *Faults) begin(w *watching) *injected {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	w.number = f.last
	f.watches[w] = struct{}{}
	for _, one := range f.all {
		if f.hits(one, &w.request) {
			return one
		}
	}
	return nil
}

func (f *Faults) forget(w *watching) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watches, w)
}

// sendExpired ends a watch with the event that says that its resource version is too old. A
// compressed response has ended already, and the client finds out when it watches again.
func (f *Faults) sendExpired(w http.ResponseWriter) {
	kind, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
	kind = strings.TrimSuffix(kind, "-seq") // of a sequence in CBOR
	info, ok := runtime.SerializerInfoForMediaType(f.config.Serializer.SupportedMediaTypes(), kind)
	if !ok || info.StreamSerializer == nil || w.Header().Get("Content-Encoding") != "" {
		panic(http.ErrAbortHandler)
	}
	status := expired().ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	object, err := runtime.Encode(info.Serializer, &status)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	event := &metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: object}}
	if info.StreamSerializer.Serializer.Encode(event, info.StreamSerializer.NewFrameWriter(w)) != nil {
		panic(http.ErrAbortHandler)
	}
}

// maxHeld limits the bytes of a watch that are held back. Then the watch waits, as it does for a
// client that does not read.
const maxHeld = 16 << 20

// heldResponse is the response of a watch, which can be held back.
type heldResponse struct {
	http.ResponseWriter
	done  <-chan struct{} // closed when the watch ends
	begun func()          // if set, called when the response begins

	holding sync.WaitGroup // the goroutines that wait for the end of a hold

	mu     sync.Mutex
	change sync.Cond // signalled when holds becomes 0, and when the watch ends
	holds  int
	ended  bool
	buffer []byte // what is held back
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (h *heldResponse) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// hold keeps back what is written until released is closed.
func (h *heldResponse) hold(released <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	h.holds++
	h.holding.Go(func() {
		select {
		case <-released:
		case <-h.done:
		}
		h.release()
	})
}

// release ends one hold. After the last one, the held events are sent, unless the watch has ended:
// then the client gets them from its next watch.
func (h *heldResponse) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds--
	select {
	case <-h.done:
		h.ended = true
	default:
	}
	if h.holds == 0 && !h.ended {
		_, _ = h.ResponseWriter.Write(h.buffer) // the watch itself notices
		h.buffer = nil
		h.ResponseWriter.(http.Flusher).Flush()
	}
	h.change.Broadcast()
}

// WriteHeader implements http.ResponseWriter.
func (h *heldResponse) WriteHeader(code int) {
	h.ResponseWriter.WriteHeader(code)
	if h.begun != nil {
		h.begun()
	}
}

// Write implements http.ResponseWriter.
func (h *heldResponse) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.holds > 0 && !h.ended && len(h.buffer) >= maxHeld {
		h.change.Wait()
	}
	if h.holds > 0 && !h.ended {
		h.buffer = append(h.buffer, p...)
		return len(p), nil
	}
	return h.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (h *heldResponse) Flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ResponseWriter.(http.Flusher).Flush()
}
