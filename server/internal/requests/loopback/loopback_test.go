package loopback_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/kinproc/kinproc/server/internal/requests/loopback"
)

// streaming is a handler whose responses stream.
type streaming struct{ http.HandlerFunc }

func (streaming) Prepare(r *http.Request) (*http.Request, bool) { return r, true }

// A stream that is open when the server stops ends as the handler ends it. It is not complete if
// something has been lost.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes int
		want  error
	}{
		"all was written": {100, nil},
		"a write is lost": {5 << 20, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := loopback.New()
			begun := make(chan struct{})
			transport.Serve(streaming{func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				close(begun)
				for range c.bytes / 100 {
					if _, err := w.Write(make([]byte, 100)); err != nil {
						return
					}
				}
				<-r.Context().Done()
			}})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.As(&x509.Certificate{}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			<-begun
			transport.Stop()
			if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// complete is a handler whose responses do not stream.
type complete struct{ http.HandlerFunc }

func (complete) Prepare(r *http.Request) (*http.Request, bool) { return r, false }

// The deadline of a request is that of the handler, and of what the handler asks etcd for.
func TestPassesDeadline(t *testing.T) {
	t.Parallel()
	transport := loopback.New()
	defer transport.Stop()
	transport.Serve(complete{func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Deadline()
		_, _ = io.WriteString(w, at.String())
	}})
	at := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), at)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != at.String() {
		t.Errorf("the handler's deadline is %s, want %s (%v)", got, at, err)
	}
}
