package apitest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/dashboard"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestDashboardLive(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{})
	all := p.events("/live")
	posts := p.events("/live?method=post&path=configmaps&user=kubernetes-super")
	others := p.events("/live?user=-kubernetes-super&path=/nothing")
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	name := 0
	// The stream of requests may begin after the first one.
	p.repeat(func() {
		name++
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("one-%d", name)}},
			metav1.CreateOptions{})
		if err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		client.RESTClient().Get().AbsPath("/nothing").Do(t.Context())
		p.try("GET", "/nothing/else", "", "")
	}, func() {
		all("passed", hasText(`"verb":"create","resource":"configmaps","class":2`))
		all("passed", hasText(`{"end":"not found","verb":"get","resource":"/nothing","class":4`))
		others("passed", hasText(`"user":"kinproc-dashboard"`))
	})
	data := posts("passed", hasText(`"path":"/api/v1/namespaces/default/configmaps`))
	var passed struct {
		Requests []struct {
			ID     int
			Method string
			End    string
		}
	}
	if err := json.Unmarshal([]byte(data), &passed); err != nil {
		t.Fatal(err)
	}
	if first := passed.Requests[0]; first.Method != http.MethodPost || first.End != "core" {
		t.Errorf("the first request is %+v", first)
	}
	code, body := p.get(fmt.Sprintf("/live/%d", passed.Requests[0].ID))
	if code != http.StatusOK || !strings.Contains(body, `"at":"etcd"`) ||
		!strings.Contains(body, `kind: ConfigMap`) {
		t.Errorf("the request with its steps got %d: %s", code, body)
	}
}

// TestDashboardFlow shows what passes the boxes and lines of the picture, and the latest requests
// that have passed a box, without another request.
func TestDashboardFlow(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{})
	live := p.events("/live?path=configmaps")
	p.awaitFollowing(s)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1()
	if _, err := client.ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	live("passed", hasText("/configmaps"))
	flow := live("flow", hasText(`"from":"core","to":"etcd"`))
	for _, want := range []string{
		`{"from":"clients","to":"filters","perSecond":`, `{"from":"aggregator","to":"core",`,
		`{"to":"authentication","perSecond":`, `{"to":"etcd","perSecond":`,
	} {
		if !strings.Contains(flow, want) {
			t.Errorf("there is no %s: %s", want, flow)
		}
	}
	later := p.events("/live?at=etcd&path=/api/v1/namespaces/default/configmaps")
	requests := liveRequests(t, later("passed", hasText("/configmaps")))
	if r := requests[0]; r.Method != http.MethodPost || r.Code != http.StatusCreated {
		t.Errorf("the latest request that passed etcd is %+v", r)
	}
	if code, _ := p.get(fmt.Sprintf("/live/%d", requests[0].ID)); code != http.StatusOK {
		t.Errorf("it got %d", code)
	}
}

// repeat calls f again and again until done returns.
func (p *dashboardPage) repeat(f, done func()) {
	p.t.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				f()
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	done()
}

// awaitFollowing waits until the dashboard follows the requests, which it begins to do when the
// first stream is opened. That one stays open.
func (p *dashboardPage) awaitFollowing(s *server.Server) {
	p.t.Helper()
	followed, leave := p.stream("/live?path=/healthz")
	defer leave()
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).RESTClient()
	p.repeat(func() { client.Get().AbsPath("/healthz").Do(p.t.Context()) }, func() {
		followed("passed", hasText("/healthz"))
	})
}

func TestDashboardClosedPageCostsNothing(t *testing.T) {
	t.Parallel()
	backend := &auditBackend{}
	s := servertest.Run(t, func(o *server.Options) { o.AuditBackend = backend })
	p := openDashboard(t, s, dashboard.Options{})
	requests := func() []string { // of the dashboard that have ended
		return backend.all(func(e *auditinternal.Event) string {
			if e.User.Username != "kinproc-dashboard" {
				return ""
			}
			return e.RequestURI
		})
	}
	if got := requests(); len(got) != 1 || got[0] != "/version" {
		t.Errorf("before a stream is open, the dashboard has requested %q", got)
	}
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	request := func() { client.RESTClient().Get().AbsPath("/healthz").Do(t.Context()) }
	one, leaveOne := p.stream("/live")
	two, leaveTwo := p.stream("/live")
	p.repeat(request, func() {
		one("passed", hasText("/healthz"))
		two("passed", hasText("/healthz"))
		leaveOne()
		two("passed", hasText("/healthz"))
		leaveTwo()
		for len(requests()) < 2 {
			runtime.Gosched()
		}
	})
	request()
	p.stop()
	if got := requests(); len(got) != 2 || !strings.HasPrefix(got[1], trace.FollowPath) {
		t.Errorf("after the streams are closed, the dashboard has requested %q", got)
	}
}

// TestDashboardNothingOfSecrets searches everything that the dashboard sends for the value of a
// secret.
func TestDashboardNothingOfSecrets(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.Controllers = []string{"*"} })
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	const value = "Correct-Horse-Battery-Staple"
	const secrets = "/api/v1/namespaces/default/secrets"
	encoded := base64.StdEncoding.EncodeToString([]byte(value))
	object := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%%s","annotations":{
		"kubectl.kubernetes.io/last-applied-configuration":
		"{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"stringData\":{\"password\":\"%[1]s\"}}",
		"example.com/original":"%[1]s"}},"stringData":{"password":"%[1]s"}}`, value)
	live := p.events("/live?user=kinproc-dashboard")
	p.awaitFollowing(s)
	list := p.events("/objects?version=v1&resource=secrets&inside=default&name=one")
	// awaitSteps waits for a request and gets the steps of what has passed. An event shows few of
	// the requests of a moment, so each request is waited for.
	awaitSteps := func(method, path string) {
		t.Helper()
		path, _, _ = strings.Cut(path, "?")
		for found := false; !found; {
			for _, r := range liveRequests(t, live("passed", hasText(`"id"`))) {
				p.get(fmt.Sprintf("/live/%d", r.ID))
				to, _, _ := strings.Cut(r.Path, "?")
				found = found || r.Method == method && to == path
			}
		}
	}
	p.try("POST", secrets, fmt.Sprintf(object, "one"), "")
	awaitSteps("POST", secrets)
	list("object", hasText("bytes, not shown"))
	for _, each := range []struct{ method, path, body string }{
		{"GET", secrets, ""},
		{"GET", secrets + "/one", ""},
		{"GET", "/api/v1/secrets?includeObject=Object&limit=1", ""},
		{"POST", secrets + "?dryRun=All", fmt.Sprintf(object, "two")},
		{"PATCH", secrets + "/one", `{"stringData":{"more":"` + value + `"}}`},
		{
			"PATCH", secrets + "/one",
			`[{"op":"add","path":"/stringData","value":{"x":"` + value + `"}}]`,
		},
		{"PATCH", secrets + "/three", fmt.Sprintf(object, "three")},
		{"PUT", secrets + "/one", fmt.Sprintf(object, "one")},
		{"POST", secrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"X"},"data":{"a":"` +
			encoded + `"}}`},
		{"POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap",
			"metadata":{"name":"copy","annotations":{"kubectl.kubernetes.io/last-applied-configuration":
			"{\"kind\":\"Secret\",\"data\":{\"a\":\"` + encoded + `\"}}"}}}`},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"kind":"TokenReview",
			"apiVersion":"authentication.k8s.io/v1","spec":{"token":"` + value + `"}}`},
		{"DELETE", secrets + "/three", ""},
		{"DELETE", secrets, ""},
	} {
		code, body := p.try(each.method, each.path, each.body, "")
		if code != http.StatusOK {
			t.Errorf("%s %s got %d: %s", each.method, each.path, code, body)
		}
		awaitSteps(each.method, each.path)
	}
	awaitDefaultAccount(t, kubernetes.NewForConfigOrDie(s.RESTConfig()))
	const token = "/api/v1/namespaces/default/serviceaccounts/default/token"
	code, body := p.try("POST", token,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`, "")
	if code != http.StatusOK || !strings.Contains(body, "bytes, not shown") {
		t.Errorf("the request for a token got %d: %s", code, body)
	}
	awaitSteps("POST", token)
	p.get("/inventory")
	p.get("/counts")
	seen := p.seen.all()
	if strings.Count(seen, "default/secrets") < 10 {
		t.Error("the requests for secrets were not seen")
	}
	for _, hidden := range []string{value, encoded, "eyJ"} { // a token is base64 of a JSON object
		if i := strings.Index(seen, hidden); i >= 0 {
			t.Errorf("%q was sent: %s", hidden, seen[max(0, i-600):min(len(seen), i+200)])
		}
	}
}
