package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestTraceOfOneTooMany traces a request of a user who may have one request at a time and already
// has one.
func TestTraceOfOneTooMany(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.AuthorizationModes = []string{"AlwaysAllow"} })
	oneAtATime(t, kubernetes.NewForConfigOrDie(s.RESTConfig()), "late")
	config, err := s.User("late")
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	url := s.URL() + "/api/v1/namespaces/default"
	ends := func(decision string) func(trace.Step) bool {
		return func(step trace.Step) bool {
			return step.At == "flow control" && step.Decision == decision &&
				step.Reason == "flow schema late, priority level late"
		}
	}
	eventually(t, "the limit is in force", func() error {
		_, steps := traceOf(t, client, url)
		if !slices.ContainsFunc(steps, ends("admitted")) {
			return fmt.Errorf("the steps are %+v", steps)
		}
		return nil
	})

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		traceHold(ctx, t, client, url+"/configmaps")
	}()
	defer func() { cancel(); <-ended }()
	eventually(t, "one request is too many", func() error {
		code, steps := traceOf(t, client, url)
		if code != http.StatusTooManyRequests {
			return fmt.Errorf("the steps are %+v", steps)
		}
		if !ends("refused")(steps[len(steps)-1]) {
			t.Errorf("the last step is not a refusal by flow control: %+v", steps)
		}
		return nil
	})
}

// traceHold sends a request that lasts until ctx ends. It tries again if the request is refused
// with status 429.
func traceHold(ctx context.Context, t *testing.T, client *http.Client, url string) {
	for ctx.Err() == nil {
		body, half := io.Pipe()
		defer half.Close()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
		if err != nil {
			t.Error(err)
			return
		}
		response, err := client.Do(r)
		if err != nil {
			continue // ctx has ended
		}
		response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests {
			t.Errorf("an incomplete request was answered with %s", response.Status)
			return
		}
	}
}

// traceOf sends a GET and returns the status code of the response and the trace.
func traceOf(t *testing.T, client *http.Client, url string) (int, []trace.Step) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(trace.Header, "1")
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	var steps []trace.Step
	if err := json.Unmarshal([]byte(response.Trailer.Get(trace.Header)), &steps); err != nil {
		t.Fatalf("response %s has no trace: %v", response.Status, err)
	}
	return response.StatusCode, steps
}
