package apitest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/dashboard"
	"github.com/kinproc/kinproc/server/servertest"
)

// dashboardPage is a dashboard with a browser that has a session.
type dashboardPage struct {
	*http.Client
	t         *testing.T
	link, url string
	stop      func() // ends the dashboard
	seen      *dashboardSeen
}

// dashboardSeen is everything that a browser has received.
type dashboardSeen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *dashboardSeen) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.WriteString(text)
}

func (s *dashboardSeen) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// openDashboard serves the dashboard of a control plane and begins a session.
func openDashboard(t *testing.T, s *server.Server, options dashboard.Options) *dashboardPage {
	t.Helper()
	config, err := s.InProcessConfig("kinproc-dashboard", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dashboard.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	l, err := dashboard.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- d.Serve(ctx, l)
		close(ended)
	}()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &dashboardPage{
		Client: &http.Client{Jar: jar, Transport: &http.Transport{}}, t: t, link: d.Link(l),
		url: "http://" + l.Addr().String(), seen: &dashboardSeen{},
	}
	p.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		p.CloseIdleConnections()
	}
	t.Cleanup(p.stop)
	if code, body := p.get(strings.TrimPrefix(p.link, p.url)); code != http.StatusOK {
		t.Fatalf("the link got %d: %s", code, body)
	}
	return p
}

// do sends a request and returns the response's code and body.
func (p *dashboardPage) do(r *http.Request) (int, string) {
	p.t.Helper()
	response, err := p.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	for header, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self';",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"Cache-Control":           "no-store",
	} {
		if got := response.Header.Get(header); !strings.HasPrefix(got, want) {
			p.t.Errorf("%s: %s is %q, want %q", r.URL, header, got, want)
		}
	}
	p.seen.add(string(body))
	return response.StatusCode, string(body)
}

func (p *dashboardPage) request(method, path, body string) *http.Request {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if method != http.MethodGet {
		r.Header.Set("Origin", p.url)
		r.Header.Set("Kinproc-Dashboard", "1")
	}
	return r
}

func (p *dashboardPage) get(path string) (int, string) {
	p.t.Helper()
	return p.do(p.request(http.MethodGet, path, ""))
}

// try sends a request with the form.
func (p *dashboardPage) try(method, path, body, as string) (int, string) {
	p.t.Helper()
	form, err := json.Marshal(map[string]string{
		"method": method, "path": path, "body": body, "as": as,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.do(p.request(http.MethodPost, "/try", string(form)))
}

// dashboardEvent is a server-sent event.
type dashboardEvent struct{ name, data string }

// dashboardAwait waits for the first event of a name that satisfies a condition.
type dashboardAwait func(name string, enough func(data string) bool) string

// events opens a stream until the test ends.
func (p *dashboardPage) events(path string) dashboardAwait {
	p.t.Helper()
	await, _ := p.stream(path)
	return await
}

// stream opens a stream.
func (p *dashboardPage) stream(path string) (_ dashboardAwait, leave func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(cancel)
	r := p.request(http.MethodGet, path, "").WithContext(ctx)
	response, err := p.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { response.Body.Close() })
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		body, _ := io.ReadAll(response.Body)
		p.t.Fatalf("%s: %d %s: %s", path, response.StatusCode, kind, body)
	}
	received := make(chan dashboardEvent, 1000)
	go func() {
		defer close(received)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 16<<20)
		var e dashboardEvent
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				e.name = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				e.data = data
				received <- e
			}
		}
		_ = lines.Err() // a stream ends with an error when the test leaves it
	}()
	return func(name string, enough func(data string) bool) string {
		p.t.Helper()
		last := "nothing"
		patience := time.NewTimer(60 * time.Second)
		defer patience.Stop()
		for {
			select {
			case e, ok := <-received:
				if !ok {
					p.t.Fatalf("%s ended; the last event was %s", path, last)
				}
				p.seen.add(e.data)
				if last = e.name + " " + e.data; e.name == name && enough(e.data) {
					return e.data
				}
			case <-patience.C:
				p.t.Fatalf("%s: gave up waiting for %s; the last event was %s", path, name, last)
			}
		}
	}, cancel
}

func hasText(text string) func(string) bool {
	return func(data string) bool { return strings.Contains(data, text) }
}

func TestDashboardTokenWorksOnce(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	p := openDashboard(t, s, dashboard.Options{})
	address, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	if cookies := p.Jar.Cookies(address); len(cookies) != 1 {
		t.Fatalf("the browser has cookies %v, want one", cookies)
	}
	code, body := p.get("/")
	if code != http.StatusOK || !strings.Contains(body, "<title>kinproc</title>") {
		t.Errorf("the page got %d: %s", code, body)
	}
	another := &dashboardPage{Client: &http.Client{}, t: t, url: p.url, seen: &dashboardSeen{}}
	t.Cleanup(another.CloseIdleConnections)
	for _, path := range []string{strings.TrimPrefix(p.link, p.url), "/?token=", "/?token=wrong"} {
		if code, body := another.get(path); code != http.StatusForbidden ||
			!strings.HasPrefix(body, "This link has been used") {
			t.Errorf("%s of another browser got %d: %s", path, code, body)
		}
	}
	for _, path := range []string{"/", "/inventory", "/live", "/objects", "/assets/dashboard.js"} {
		if code, body := another.get(path); code != http.StatusUnauthorized ||
			!strings.HasPrefix(body, "Open the link") {
			t.Errorf("%s without a session got %d: %s", path, code, body)
		}
	}
}

func TestDashboardCookieIsForThisPageOnly(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	d, err := dashboard.New(s.RESTConfig(), dashboard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := dashboard.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	direct := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	defer direct.CloseIdleConnections()
	// the preview of a link must not use it up
	preview, err := direct.Head(d.Link(l))
	if err != nil {
		t.Fatal(err)
	}
	preview.Body.Close()
	response, err := direct.Get(d.Link(l))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	cookies := response.Cookies()
	if response.StatusCode != http.StatusSeeOther || len(cookies) != 1 || !cookies[0].HttpOnly ||
		cookies[0].SameSite != http.SameSiteStrictMode {
		t.Errorf("got %s with cookies %v", response.Status, cookies)
	}
}

func TestDashboardRefusesOtherSites(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	const body = `{"method":"GET","path":"/version"}`
	for name, change := range map[string]func(*http.Request){
		"another host":         func(r *http.Request) { r.Host = "evil.example.com" },
		"a host that looks so": func(r *http.Request) { r.Host = "127.0.0.1.example.com:80" },
		"another origin":       func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") },
		"no origin":            func(r *http.Request) { r.Header.Del("Origin") },
		"an opaque origin":     func(r *http.Request) { r.Header.Set("Origin", "null") },
		"no header":            func(r *http.Request) { r.Header.Del("Kinproc-Dashboard") },
		"another site":         func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another port":         func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
	} {
		r := p.request(http.MethodPost, "/try", body)
		change(r)
		if code, answer := p.do(r); code != http.StatusForbidden {
			t.Errorf("%s got %d: %s", name, code, answer)
		}
	}
	if code, answer := p.do(p.request(http.MethodPost, "/try", body)); code != http.StatusOK {
		t.Errorf("the page itself got %d: %s", code, answer)
	}
}

func TestDashboardListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80", "example.com:80"} {
		if l, err := dashboard.Listen(address); err == nil {
			l.Close()
			t.Errorf("it listens on %s", address)
		} else if !strings.Contains(err.Error(), "loopback") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := dashboard.Listen("127.0.0.1"); err == nil {
		t.Error("an address without a port is accepted")
	}
}

func TestDashboardReadOnly(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{})
	const namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: new}\n"
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "post"} {
		for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces?dryRun=All"} {
			if code, body := p.try(method, path, namespace, ""); code != http.StatusForbidden ||
				!strings.Contains(body, "--dashboard-writes") {
				t.Errorf("%s %s got %d: %s", method, path, code, body)
			}
		}
	}
	code, body := p.do(p.request(http.MethodPost, "/walk", "{}"))
	if code != http.StatusOK || !strings.Contains(body, `"code":201`) ||
		!strings.Contains(body, `"mutating admission"`) {
		t.Errorf("the walk got %d: %s", code, body)
	}
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 0 {
		t.Errorf("there are %d pods, error %v", len(pods.Items), err)
	}
	_, err = client.CoreV1().Namespaces().Get(t.Context(), "new", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the namespace: %v, want that it is not found", err)
	}
}

func TestDashboardWrites(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	const path = "/api/v1/namespaces/default/configmaps"
	for _, c := range []struct {
		method, path, body, as string
		code                   string
	}{
		{"POST", path, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n", "", `"code":201`},
		{"PATCH", path + "/one", "data: {color: green}", "", "color: green"},
		{
			"PATCH", path + "/one", `[{"op":"add","path":"/data/size","value":"1"}]`, "",
			"size: \\\"1\\\"",
		},
		{
			"PATCH", path + "/two",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two}\ndata: {a: b}\n", "", `"code":201`,
		},
		{
			"POST", path, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: three}\n", "jane",
			`"code":403`,
		},
		{"DELETE", path + "/one", "", "", `"code":200`},
		{"GET", path + "/one", "", "", `"code":404`},
		{"POST", path, "", "", "needs a body"},
	} {
		if _, body := p.try(c.method, c.path, c.body, c.as); !strings.Contains(body, c.code) {
			t.Errorf("%s %s as %q got %s, want %s", c.method, c.path, c.as, body, c.code)
		}
	}
	code, body := p.do(p.request(http.MethodPost, "/walk", "{}"))
	if code != http.StatusOK || !strings.Contains(body, `"created":"walk-`) ||
		!strings.Contains(body, `"decision":"write"`) {
		t.Errorf("the walk got %d: %s", code, body)
	}
}

func TestDashboardBadInput(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	const path = "/api/v1/namespaces/default/configmaps"
	for _, c := range []struct{ method, path, body, as, want string }{
		{"", path, "", "", "is not a method"},
		{"CONNECT", path, "", "", "is not a method"},
		{"GET /", path, "", "", "is not a method"},
		{"GET", "", "", "", "does not begin with one slash"},
		{"GET", "api", "", "", "does not begin with one slash"},
		{"GET", "//example.com/api", "", "", "does not begin with one slash"},
		{"GET", "http://example.com/api", "", "", "does not begin with one slash"},
		{"GET", "/api/../metrics", "", "", "segment .."},
		{"GET", "/api/%2e%2e/metrics", "", "", "segment .."},
		{"GET", "/api/%zz", "", "", "is not a path"},
		{"GET", "/api/v1/pods?watch=1", "", "", "does not end"},
		{"GET", "/api/v1/watch/pods", "", "", "does not end"},
		{"GET", "/api/v1/namespaces/default/pods/web/log?follow=1", "", "", "does not end"},
		{"GET", "/kinproc/v1/trace/requests", "", "", "does not end"},
		{"GET", "/kinproc/v1/history/api/v1/namespaces/default/configmaps?watch=true&limit=1",
			"", "",
			"does not end"},
		{"GET", "/kinproc/v1/history/api/v1/namespaces/default/configmaps/one?limit=1&watch=true",
			"", "",
			"does not end"},
		{"GET", "/api/v1/namespaces/default/pods/web/exec?command=id", "", "", "does not connect"},
		{"GET", "/api/v1/nodes/one/proxy/metrics", "", "", "does not connect"},
		{"GET", path, "a: b", "", "A GET has no body"},
		{"POST", path, "a: [", "", "neither YAML nor JSON"},
		{"POST", path, "a: b\na: c", "", "neither YAML nor JSON"},
		{"POST", path, "text", "", "is not an object"},
		{"POST", path, "[]", "", "is not an object"},
		{"POST", path, "---\na: b\n---\nc: d", "", "several documents"},
		{"GET", path, "", "jane\r\nX-Evil: 1", "is not the name"},
	} {
		code, body := p.try(c.method, c.path, c.body, c.as)
		if code != http.StatusBadRequest || !strings.Contains(body, c.want) ||
			strings.Count(body, "\n") != 1 {
			t.Errorf("%q %q %q got %d: %s, want a sentence with %q", c.method, c.path, c.body, code, body,
				c.want)
		}
	}
	for _, path := range []string{
		"/objects", "/objects?version=v1", "/objects?version=v1&resource=../pods",
		"/objects?version=v1&resource=pods&namespace=a/b", "/live/x", "/live/-1",
	} {
		if code, body := p.get(path); code != http.StatusBadRequest {
			t.Errorf("%s got %d: %s", path, code, body)
		}
	}
	if code, body := p.do(p.request(http.MethodPost, "/try", "{")); code != http.StatusBadRequest {
		t.Errorf("half a form got %d: %s", code, body)
	}
	if code, body := p.get("/live/12345"); code != http.StatusNotFound {
		t.Errorf("an unknown request got %d: %s", code, body)
	}
	await := p.events("/objects?version=v1&resource=things")
	await("failed", hasText("could not find the requested resource"))
}

func TestDashboardObjectsAreLive(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	p := openDashboard(t, s, dashboard.Options{})
	await := p.events("/objects?version=v1&resource=configmaps&namespace=" + namespace +
		"&inside=" + namespace + "&name=one")
	await("object", hasText("not found"))
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps(namespace)
	one := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"color": "green"},
	}
	if _, err := client.Create(t.Context(), one, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("list", hasText(`"name":"one"`))
	await("object", hasText("color: green"))
	one.Data["color"] = "blue"
	if _, err := client.Update(t.Context(), one, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("object", hasText("color: blue"))
	if err := client.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("list", func(data string) bool { return !strings.Contains(data, `"name":"one"`) })
}

func TestDashboardInventory(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	servertest.CRDs(t, s, servertest.Files("../../../examples/crontab/manifests"))
	address, ignore, none := "https://127.0.0.1:9/guard", admissionregistrationv1.Ignore,
		admissionregistrationv1.SideEffectClassNone
	guards := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "guards"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "guard.example.com", FailurePolicy: &ignore, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &address},
		}},
	}
	if _, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).AdmissionregistrationV1().
		ValidatingWebhookConfigurations().Create(t.Context(), guards, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := openDashboard(t, s, dashboard.Options{})
	var body string
	await(t, "the node, which is made after the start, is in the inventory", func() bool {
		_, body = p.get("/inventory")
		return strings.Contains(body, `"name":"simulated-0"`)
	})
	if !strings.Contains(body, `{"name":"namespace-controller","value":`) { // other tests stop it
		t.Errorf("the inventory lacks the control loops: %s", body)
	}
	for _, want := range []string{
		`{"version":"apps/v1","link":"core","kinds":5}`,
		`{"version":"authentication.k8s.io/v1","link":"core","kinds":2}`,
		`{"version":"apiregistration.k8s.io/v1","link":"aggregator","kinds":1}`,
		`{"version":"simple.extension.io/v1","link":"extensions","kinds":1}`,
		`"object":"crontabs.simple.extension.io","type":"Established","status":"True"`,
		`"object":"v1.apps","type":"Available","status":"True","reason":"Local"`,
		`"problems":null`,
		`{"kind":"validating","configuration":"guards","name":"guard.example.com",` +
			`"asks":"127.0.0.1:9","policy":"Ignore"}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the inventory lacks %s: %s", want, body)
		}
	}
	if _, body := p.get("/counts"); !strings.Contains(body,
		`"kind":"Namespace","namespaced":false,"watchable":true,"count":"4"`) {
		t.Errorf("the counts are %s", body)
	}
}

func TestDashboardEndsStreams(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	p := openDashboard(t, s, dashboard.Options{})
	p.events("/live")
	p.events("/objects?version=v1&resource=pods")("list", hasText("{"))
	p.stop() // fails the test if a stream goes on
}
