package conformance_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/conformance/internal/exchanges"
)

var (
	oddSecond = flag.String("second", "",
		"kubeconfig of the server that TestAnswersOddRequestsAsAnother compares with; "+
			"if empty, another kinproc")
	oddRounds = flag.Uint64("rounds", 100,
		"how many cases of odd requests TestAnswersOddRequestsAsAnother sends")
	oddSeed = flag.Uint64("seed", 1, "seed of the odd requests")
	oddFrom = flag.Uint64("from", 0, "number of the first case of odd requests")
)

// TestAnswersOddRequestsAsAnother sends odd requests, derived from the recorded ones, to a control
// plane and to another server. It compares the responses in the same way as recorded responses. A
// broken connection or a status of 500 or above is a failure, whatever the other server responds.
func TestAnswersOddRequestsAsAnother(t *testing.T) {
	t.Parallel()
	second, against := exchanges.Target{}, "another kinproc"
	if *oddSecond == "" {
		second = start(t)
	} else {
		second, against = targetOf(t, *oddSecond), *oddSecond
	}
	o := newOddRun(t, start(t), second)
	o.run(t, *oddSeed, *oddFrom, *oddRounds)
	for _, f := range o.findings {
		t.Error(f)
	}
	for _, place := range slices.Sorted(maps.Keys(o.places)) {
		t.Logf("%4d x %s", o.places[place], place)
	}
	meant := 0
	for _, reason := range slices.Sorted(maps.Keys(o.meant)) {
		t.Logf("%4d intended: %s", o.meant[reason], reason)
		meant += o.meant[reason]
	}
	t.Logf("seed %d, cases %d to %d, against %s: %d requests, %d of them odd; %d differences, "+
		"%d more intended ones",
		*oddSeed, *oddFrom, o.next, against, o.requests, o.oddRequests, len(o.findings), meant)
}

// TestOddRequestsFindDifferences compares with a server that never responds with a 404 or a
// warning.
func TestOddRequestsFindDifferences(t *testing.T) {
	t.Parallel()
	first, second := start(t), start(t)
	second.Client = &http.Client{Transport: lying{second.Client.Transport}}
	o := newOddRun(t, first, second)
	o.run(t, 1, 0, 30)
	found := strings.Join(o.findings, "\n")
	for _, what := range []string{"status: want 410, got 404", "warnings: want null"} {
		if !strings.Contains(found, what) {
			t.Errorf("did not find a difference with %q", what)
		}
	}
}

type lying struct{ http.RoundTripper }

func (l lying) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Header.Del("Warning")
		if response.StatusCode == http.StatusNotFound {
			response.StatusCode = http.StatusGone
		}
	}
	return response, err
}

// targetOf returns the server of a kubeconfig.
func targetOf(t *testing.T, kubeconfig string) exchanges.Target {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	token := config.BearerToken
	if token != "" { // some requests are sent without it
		config = rest.AnonymousClientConfig(config)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return exchanges.Target{URL: strings.TrimSuffix(config.Host, "/"), Client: client, Token: token}
}

// oddRun is the state of a comparison.
type oddRun struct {
	first, second exchanges.Target
	generator     *generator
	// tag makes the object names unique among all runs against the same server.
	tag string

	findings              []string
	places                map[string]int
	requests, oddRequests int
	meant                 map[string]int // by reason
	next                  uint64
	silent                int // number of consecutive requests that the second server did not answer
}

const maxSilent = 20

func newOddRun(t *testing.T, first, second exchanges.Target) *oddRun {
	t.Helper()
	recordings, err := exchanges.Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []*exchanges.Target{&first, &second} {
		client := *target.Client
		client.Timeout = answerTimeout
		target.Client = &client
	}
	for _, target := range []exchanges.Target{first, second} {
		answers, err := exchanges.NewPair(target, target).Ask(t.Context(),
			&exchanges.Request{Method: http.MethodGet, Path: "/api/v1/namespaces"})
		if err != nil || answers.First == nil || answers.First.Status != http.StatusOK {
			t.Fatalf("%s does not let an administrator list namespaces: %v %v",
				target.URL, err, answers.Broken)
		}
	}
	return &oddRun{
		first:     first,
		second:    second,
		generator: newGenerator(recordings, exceptions(t)),
		places:    map[string]int{},
		meant:     map[string]int{},
		tag:       fmt.Sprintf("o%x", time.Now().UnixMilli()%(1<<28)),
	}
}

// answerTimeout is far longer than any response takes.
const answerTimeout = 60 * time.Second

func (o *oddRun) run(t *testing.T, seed, from, rounds uint64) {
	t.Helper()
	deadline, bounded := t.Deadline()
	for o.next = from; o.next < from+rounds; o.next++ {
		if bounded && time.Until(deadline) < answerTimeout+30*time.Second {
			t.Logf("the test's deadline is near: stopped before case %d", o.next)
			return
		}
		if done := o.next - from; done > 0 && done%500 == 0 {
			t.Logf("%d cases, %d requests, %d differences", done, o.requests, len(o.findings))
		}
		findings := o.round(t, seed, o.next, "a")
		if len(findings) == 0 {
			continue
		}
		// Differences that are due to timing or chance do not recur.
		again := o.round(t, seed, o.next, "b")
		for _, f := range findings {
			same := func(g finding) bool { return g.step == f.step && slices.Equal(g.what, f.what) }
			if !f.fatal && !slices.ContainsFunc(again, same) {
				continue
			}
			if reason := reasonFor(f); !f.fatal && reason != "" {
				o.meant[reason]++
				continue
			}
			o.findings = append(o.findings, f.String())
			o.places[f.place()]++
		}
	}
}

// finding is a difference between the responses to one request.
type finding struct {
	number uint64
	step   int
	name   string // name of the recorded case
	odd    string
	what   []string
	fatal  bool
	curl   string
	status [2]int
}

func (f finding) String() string {
	return fmt.Sprintf("case %d #%d, %s, %s: %s\n\t%s",
		f.number, f.step, f.name, f.odd, strings.Join(f.what, "; "), f.curl)
}

var quoted = regexp.MustCompile(`: want .*|"[^"]*"|\d+`)

// place returns the finding without the details that vary from case to case.
func (f finding) place() string {
	recording, _, _ := strings.Cut(f.name, "/")
	return fmt.Sprintf("%d not %d, %s: %s", f.status[0], f.status[1], recording,
		quoted.ReplaceAllString(f.what[0], "…"))
}

// round sends the requests of a case.
func (o *oddRun) round(t *testing.T, seed, number uint64, attempt string) []finding {
	t.Helper()
	ctx := t.Context()
	c, err := o.generator.make(seed, number, fmt.Sprintf("%s-%d%s", o.tag, number, attempt))
	if err != nil {
		t.Fatal(err)
	}
	before := exchanges.NewPair(o.first, o.second)
	if c.Namespace != "" {
		o.ask(ctx, t, before,
			&exchanges.Request{Method: http.MethodPost, Path: "/api/v1/namespaces", Body: map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": c.Namespace},
			}})
	}
	pair := exchanges.NewPair(o.first, o.second)
	var findings []finding
	diverged := false
	for i := range c.Steps {
		answers := o.ask(ctx, t, pair, &c.Steps[i].Request)
		o.requests++
		if c.odd[i] != "" {
			o.oddRequests++
		}
		f := finding{
			number: number,
			step:   i,
			name:   c.Name,
			odd:    c.odd[i],
			curl:   answers.Curl,
			what:   o.compare(c, i, answers),
		}
		if answers.First != nil {
			f.status[0] = answers.First.Status
		}
		if answers.Second != nil {
			f.status[1] = answers.Second.Status
			o.silent = 0
		} else if o.silent++; o.silent > maxSilent {
			t.Fatalf("%s no longer responds: %v", o.second.URL, answers.Broken)
		}
		text := message(answers)
		unreadable := text == "<protobuf>" && f.status[0] == f.status[1]
		if f.status[0] == 0 || f.status[0] >= http.StatusInternalServerError && !unreadable &&
			!serverErrors.MatchString(text) {
			f.fatal, f.what = true, append(f.what, fmt.Sprintf("answer %d: %s", f.status[0], text))
		}
		if diverged && !f.fatal {
			f.what = nil // a consequence of an earlier difference
		}
		write := c.Steps[i].Request.Method != http.MethodGet
		diverged = diverged || write && f.status[0] != f.status[1]
		if *oddRounds == 1 {
			t.Logf("#%d %s: %d and %d: %s", i, c.odd[i], f.status[0], f.status[1], answers.Curl)
		}
		if len(f.what) > 0 {
			findings = append(findings, f)
		}
	}
	after := exchanges.NewPair(o.first, o.second)
	for i := range c.Cleanup {
		o.ask(ctx, t, after, &c.Cleanup[i])
	}
	if c.Namespace != "" {
		namespace := "/api/v1/namespaces/" + c.Namespace
		// No controller empties the namespace, and addresses are few.
		for _, path := range []string{namespace + "/services", namespace} {
			o.ask(ctx, t, after, &exchanges.Request{Method: http.MethodDelete, Path: path})
		}
	}
	return findings
}

func (o *oddRun) ask(
	ctx context.Context, t *testing.T, pair *exchanges.Pair, r *exchanges.Request,
) exchanges.Answers {
	t.Helper()
	answers, err := pair.Ask(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// compare returns the differences between comparable parts of two responses. The body of a
// successful response is not comparable if it may include objects that the case did not create,
// such as objects that a server creates for itself.
func (o *oddRun) compare(c *oddCase, step int, answers exchanges.Answers) []string {
	if c.meant[step] {
		return nil
	}
	if _, ok := c.Steps[step].Request.Headers["Authorization"]; ok && o.second.Token == "" {
		return nil // the client certificate would be sent anyway
	}
	failed := func(r *exchanges.Response) bool { return r == nil || r.Status >= http.StatusBadRequest }
	everything := c.owns(&c.Steps[step].Request) || failed(answers.First) || failed(answers.Second)
	var differences []string
	for _, what := range answers.What {
		if everything || !strings.HasPrefix(what, "body/") {
			differences = append(differences, strings.ReplaceAll(what, c.id, "ID"))
		}
	}
	return differences
}

func message(answers exchanges.Answers) string {
	if answers.First == nil {
		return fmt.Sprint(answers.Broken)
	}
	if body, ok := answers.First.Body.(map[string]any); ok {
		return fmt.Sprint(body["message"])
	}
	return fmt.Sprint(answers.First.Body)
}
