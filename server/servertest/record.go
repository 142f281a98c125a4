package servertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/server"
)

// readsVariable names the environment variable that makes failed tests print reads too.
const readsVariable = "KINPROC_PRINT_READS"

// A failed test prints at most twice maxLines lines of maxLine bytes, and the versions of objects;
// see story.
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
// recorder may be nil.
func record(t TB, o *server.Options) (*recorder, *report) {
	if _, benchmark := t.(interface{ ReportMetric(float64, string) }); benchmark {
		return nil, nil // it would be measured too
	}
	r := &recorder{tails: map[*tails]struct{}{}, reads: os.Getenv(readsVariable) != ""}
	var printed *report
	if c, ok := t.(*commonTB); ok {
		c.recorders = append(c.recorders, r)
	} else if f, ok := t.(failing); ok {
		printed = r.report(f, "")
	} else {
		return nil, nil
	}
	if o.Log.IsZero() {
		o.Log = funcr.New(r.log, funcr.Options{})
	}
	if o.AuditBackend == nil {
		o.AuditBackend = r
	}
	return r, printed
}

// clock is the format of times in the logs.
const clock = "15:04:05.000"

// recorder keeps the ends of a control plane's log and audit log, once for each test that may print
// them. It is an audit.Backend.
type recorder struct {
	reads bool // are kept too

	mu     sync.Mutex
	server *server.Server // nil until it has started
	tails  map[*tails]struct{}
}

func (r *recorder) started(s *server.Server) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = s
}

// tails are the ends of the logs for one test.
type tails struct {
	// namespace is the test's namespace. Requests for others are left out, unless it is empty.
	namespace string
	// written are the latest namespaces that the test has written to.
	written  []string
	log      tail[string]
	requests tail[request]
}

// report is what a test prints if it fails. All methods accept nil.
type report struct {
	t        failing
	recorder *recorder
	kept     *tails
	story    string
}

// report begins to keep the logs for a test.
func (r *recorder) report(t failing, namespace string) *report {
	kept := &tails{namespace: namespace}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tails[kept] = struct{}{}
	return &report{t: t, recorder: r, kept: kept}
}

// look reads the versions of the test's objects if the test has failed, while the server still
// runs.
func (p *report) look() {
	if p == nil || !p.t.Failed() {
		return
	}
	p.recorder.mu.Lock()
	s, namespaces := p.recorder.server, slices.Clone(p.kept.written)
	p.recorder.mu.Unlock()
	if p.kept.namespace != "" {
		namespaces = []string{p.kept.namespace}
	}
	if s != nil {
		p.story = story(s, namespaces)
	}
}

// print ends the keeping of the logs, and prints them if the test has failed.
func (p *report) print() {
	if p == nil {
		return
	}
	p.recorder.mu.Lock()
	delete(p.recorder.tails, p.kept)
	p.recorder.mu.Unlock()
	if !p.t.Failed() {
		return
	}
	for _, part := range []struct{ name, text string }{
		{"log of the control plane", p.kept.log.text(func(line string) string { return line })},
		{"versions of objects", p.story},
		{"requests to the control plane", p.kept.requests.text(counting())},
	} {
		if part.text != "" {
			p.t.Logf("servertest: %s:\n%s", part.name, part.text)
		}
	}
}

// log records a line of the control plane's log.
func (r *recorder) log(prefix, args string) {
	line := oneLine(time.Now().Format(clock) + " " + strings.TrimSpace(prefix+" "+args))
	r.mu.Lock()
	defer r.mu.Unlock()
	for kept := range r.tails {
		kept.log.add(line)
	}
}

// ProcessEvents records requests.
func (r *recorder) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		read := e.Verb == "get" || e.Verb == "list" || e.Verb == "watch"
		if read && !r.reads && !refused(e) && e.Annotations[fault.Annotation] == "" {
			continue
		}
		described := describe(e)
		r.mu.Lock()
		for kept := range r.tails {
			if !kept.concerns(e) {
				continue
			}
			kept.requests.add(described)
			if !read && !strings.HasPrefix(e.User.Username, "system:") {
				kept.wrote(e.ObjectRef)
			}
		}
		r.mu.Unlock()
	}
	return true
}

func (r *recorder) Run(<-chan struct{}) error { return nil }
func (r *recorder) Shutdown()                 {}
func (r *recorder) String() string            { return "servertest" }

// refused reports whether a request failed, but for reads of what is not there: controllers look
// before they create something.
func refused(e *auditinternal.Event) bool {
	return e.ResponseStatus != nil && e.ResponseStatus.Code >= 400 && e.ResponseStatus.Code != 404
}

// concerns reports whether a request is for the test's namespace or for the whole cluster.
func (t *tails) concerns(e *auditinternal.Event) bool {
	ref := e.ObjectRef
	return t.namespace == "" || ref == nil || ref.Namespace == "" || ref.Namespace == t.namespace
}

// wrote notes the namespace of an object that was written.
func (t *tails) wrote(ref *auditinternal.ObjectReference) {
	if ref == nil || ref.Namespace == "" || strings.HasPrefix(ref.Namespace, "kube-") {
		return
	}
	t.written = slices.DeleteFunc(t.written, func(n string) bool { return n == ref.Namespace })
	t.written = append(t.written, ref.Namespace)
	if len(t.written) > maxNamespaces {
		t.written = slices.Delete(t.written, 0, 1)
	}
}

// request is what is kept of a request.
type request struct {
	begin, what, client, problem string
	again                        bool // the client should try again
}

// describe returns what is kept of a request.
func describe(e *auditinternal.Event) request {
	user := e.User.Username
	if e.ImpersonatedUser != nil {
		user = e.ImpersonatedUser.Username + " (impersonated by " + user + ")"
	}
	took := e.StageTimestamp.Sub(e.RequestReceivedTimestamp.Time).Round(time.Millisecond)
	r := request{
		begin:  e.RequestReceivedTimestamp.Format(clock),
		what:   oneLine(fmt.Sprintf("%s %s by %s", e.Verb, e.RequestURI, user)),
		client: strings.TrimPrefix(clientOf(e.User.Username, e.UserAgent)+", "+took.String(), ", "),
	}
	if revision := e.Annotations["kinproc.dev/revision"]; revision != "" {
		r.client += ", revision " + revision
	}
	if s := e.ResponseStatus; s != nil {
		r.begin += fmt.Sprintf(" %d", s.Code)
		r.again = s.Reason == metav1.StatusReasonConflict || s.Code == 429 || s.Code >= 500
		for _, part := range []string{string(s.Reason), s.Message} {
			if part != "" {
				r.problem += ": " + part
			}
		}
		r.problem = oneLine(r.problem)
	}
	if effect := e.Annotations[fault.Annotation]; effect != "" {
		r.problem += " (fault: " + oneLine(effect) + ")"
	}
	return r
}

// clientOf returns the first word of a user agent, and whose it is as far as that is known.
func clientOf(user, agent string) string {
	agent, _, _ = strings.Cut(agent, " ")
	whose := ""
	switch {
	case user == "system:apiserver" && strings.HasPrefix(agent, "kube-apiserver/"):
		whose = "server"
	case isOwn(user):
		whose = "control loop"
	case strings.HasPrefix(agent, filepath.Base(os.Args[0])+"/"):
		whose = "test"
	}
	return strings.Trim(agent+", "+whose, ", ")
}

// isOwn reports whether a user is the control plane itself: a server, a control loop or a kubelet.
func isOwn(user string) bool {
	return user == "system:apiserver" || strings.HasPrefix(user, "system:kube-") ||
		strings.HasPrefix(user, "system:node:") ||
		strings.HasPrefix(user, "system:serviceaccount:kube-system:")
}

// counting returns a function that makes lines of consecutive requests, such as
//
//	15:04:05.000 409 update /api/…/a by jane (kubectl/v1.37.2, 2ms): Conflict: …
//	15:04:05.010 200 update /api/…/a by jane (kubectl/v1.37.2, 1ms, revision 210, retry 1)
//
// It counts how often a client has tried the same in vain before.
func counting() func(request) string {
	retries := map[string]int{}
	return func(r request) string {
		client, _, _ := strings.Cut(r.client, ",")
		key, count := r.what+" "+client, ""
		n := retries[key]
		if n > 0 {
			count = fmt.Sprintf(", retry %d", n)
		}
		if r.again {
			retries[key] = n + 1
		} else {
			delete(retries, key)
		}
		return oneLine(fmt.Sprintf("%s %s (%s%s)%s", r.begin, r.what, r.client, count, r.problem))
	}
}

// oneLine returns a text in one line of bounded length.
func oneLine(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}

// tail keeps what was added to it last.
type tail[T any] struct {
	kept  [maxLines]T
	added int
}

func (t *tail[T]) add(one T) {
	t.kept[t.added%maxLines] = one
	t.added++
}

// text returns lines, and how many others there were before.
func (t *tail[T]) text(line func(T) string) string {
	var b strings.Builder
	first := max(0, t.added-maxLines)
	if first > 0 {
		fmt.Fprintf(&b, "… %d earlier lines\n", first)
	}
	for i := first; i < t.added; i++ {
		b.WriteString(line(t.kept[i%maxLines]) + "\n")
	}
	return b.String()
}
