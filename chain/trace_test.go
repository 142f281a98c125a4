package chain_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	oneAtATime(t, s, "late")
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
	until(t, func() (bool, []trace.Step) { // wait until the limit is in force
		_, steps := traced(t, client, url)
		return slices.ContainsFunc(steps, ends("admitted")), steps
	})

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		hold(ctx, t, client, url+"/configmaps")
	}()
	defer func() { cancel(); <-ended }()
	until(t, func() (bool, []trace.Step) {
		code, steps := traced(t, client, url)
		if code != http.StatusTooManyRequests {
			return false, steps
		}
		if !ends("refused")(steps[len(steps)-1]) {
			t.Errorf("the last step is not a refusal by flow control: %+v", steps)
		}
		return true, nil
	})
}

// hold sends a request that lasts until ctx ends. It tries again if the request is refused with
// status 429.
func hold(ctx context.Context, t *testing.T, client *http.Client, url string) {
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

// until waits until a condition holds. If it gives up, it reports the last state.
func until(t *testing.T, condition func() (bool, []trace.Step)) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		ok, state := condition()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("gave up waiting, last state: %+v", state)
		}
	}
}

// oneAtATime limits a user to one request at a time.
func oneAtATime(t *testing.T, s *server.Server, user string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).FlowcontrolV1()
	_, err := client.PriorityLevelConfigurations().Create(t.Context(),
		&flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
				Type: flowcontrolv1.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
					NominalConcurrencyShares: new(int32(0)), BorrowingLimitPercent: new(int32(0)),
					LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
				},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         2,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: user},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{
					{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}},
				},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs:        []string{"*"},
					APIGroups:    []string{"*"},
					Resources:    []string{"*"},
					Namespaces:   []string{"*"},
					ClusterScope: true,
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// traced sends a GET and returns the status code of the response and the trace.
func traced(t *testing.T, client *http.Client, url string) (int, []trace.Step) {
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
