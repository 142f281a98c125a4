package servertest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr/funcr"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"

	"github.com/kinproc/kinproc/server"
)

// What a failed test prints is at most twice maxLines lines of maxLine bytes.
const (
	maxLines = 100
	maxLine  = 500
)

// failing is the part of testing.TB that prints the logs of a failed test.
type failing interface {
	Failed() bool
	Logf(format string, args ...any)
}

// record makes a control plane keep the end of its logs for t, unless t cannot print them. The
// returned function, which is never nil, prints them if t has failed.
func record(t TB, o *server.Options) (printed func()) {
	r := &recorder{tails: map[*tails]struct{}{}}
	if c, ok := t.(*commonTB); ok {
		c.recorders = append(c.recorders, r)
		printed = func() {}
	} else if _, benchmark := t.(interface{ ReportMetric(float64, string) }); benchmark {
		return func() {} // it would be measured too
	} else if f, ok := t.(failing); ok {
		printed = r.printIfFailed(f, "")
	} else {
		return func() {}
	}
	if o.Log.IsZero() {
		o.Log = funcr.New(r.log, funcr.Options{})
	}
	if o.AuditBackend == nil {
		o.AuditBackend = r
	}
	return printed
}

// clock is the format of times in the logs.
const clock = "15:04:05.000"

// recorder keeps the ends of a control plane's log and audit log, once for each test that may print
// them. It is an audit.Backend.
type recorder struct {
	mu    sync.Mutex
	tails map[*tails]struct{}
}

// tails are the ends of the logs for one test.
type tails struct {
	// namespace is the test's namespace. Requests for others are left out, unless it is empty.
	namespace string
	log       tail
	requests  tail
}

// printIfFailed begins to keep the logs. The returned function ends that, and prints them if t has
// failed.
func (r *recorder) printIfFailed(t failing, namespace string) func() {
	kept := &tails{namespace: namespace}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tails[kept] = struct{}{}
	return func() {
		r.mu.Lock()
		delete(r.tails, kept)
		r.mu.Unlock()
		if !t.Failed() {
			return
		}
		if text := kept.log.String(); text != "" {
			t.Logf("servertest: log of the control plane:\n%s", text)
		}
		if text := kept.requests.String(); text != "" {
			t.Logf("servertest: requests to the control plane:\n%s", text)
		}
	}
}

// log records a line of the control plane's log.
func (r *recorder) log(prefix, args string) {
	line := strings.TrimSpace(prefix + " " + args)
	line = time.Now().Format(clock) + " " + line
	r.mu.Lock()
	defer r.mu.Unlock()
	for kept := range r.tails {
		kept.log.add(line)
	}
}

// ProcessEvents records requests.
func (r *recorder) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		line := describe(e)
		r.mu.Lock()
		for kept := range r.tails {
			if kept.concerns(e) {
				kept.requests.add(line)
			}
		}
		r.mu.Unlock()
	}
	return true
}

func (r *recorder) Run(<-chan struct{}) error { return nil }
func (r *recorder) Shutdown()                 {}
func (r *recorder) String() string            { return "servertest" }

// concerns reports whether a request is for the test's namespace or for the whole cluster.
func (t *tails) concerns(e *auditinternal.Event) bool {
	ref := e.ObjectRef
	return t.namespace == "" || ref == nil || ref.Namespace == "" || ref.Namespace == t.namespace
}

// describe returns one line about a request, such as
//
//	15:04:05.000 403 delete /api/v1/nodes/a by jane (kubectl/v1.37.2, 2ms): Forbidden: nodes "a" is …
func describe(e *auditinternal.Event) string {
	user := e.User.Username
	if e.ImpersonatedUser != nil {
		user = e.ImpersonatedUser.Username + " (impersonated by " + user + ")"
	}
	client, _, _ := strings.Cut(e.UserAgent, " ")
	took := e.StageTimestamp.Sub(e.RequestReceivedTimestamp.Time).Round(time.Millisecond)
	line := fmt.Sprintf("%s %s by %s (%s, %s)", e.Verb, e.RequestURI, user, client, took)
	if s := e.ResponseStatus; s != nil {
		line = fmt.Sprintf("%d %s", s.Code, line)
		for _, part := range []string{string(s.Reason), s.Message} {
			if part != "" {
				line += ": " + part
			}
		}
	}
	return e.RequestReceivedTimestamp.Format(clock) + " " + line
}

// tail keeps the last lines that were added to it.
type tail struct {
	lines [maxLines]string
	added int
}

func (t *tail) add(line string) {
	line = strings.ReplaceAll(line, "\n", " ")
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "…"
	}
	t.lines[t.added%maxLines] = line
	t.added++
}

// String returns the lines, and how many others there were before.
func (t *tail) String() string {
	var b strings.Builder
	first := max(0, t.added-maxLines)
	if first > 0 {
		fmt.Fprintf(&b, "… %d earlier lines\n", first)
	}
	for i := first; i < t.added; i++ {
		b.WriteString(t.lines[i%maxLines] + "\n")
	}
	return b.String()
}
