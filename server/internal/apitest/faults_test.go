package apitest

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// faultClients returns clients over TLS and in process, with protobuf and with JSON. Their user
// agent is their name.
func faultClients(t *testing.T, s *server.Server) map[string]kubernetes.Interface {
	t.Helper()
	clients := map[string]kubernetes.Interface{}
	inProcess, err := s.InProcessConfig("jane", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{
		"TLS": s.RESTConfig(), "in process": inProcess,
	} {
		for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			c := rest.CopyConfig(config)
			c.ContentType, c.AcceptContentTypes, c.UserAgent = media, media, name+" "+media
			clients[c.UserAgent] = kubernetes.NewForConfigOrDie(c)
		}
	}
	return clients
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Each fault of a single request, by each client.
func TestFaultsOfRequests(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	for name, client := range faultClients(t, s) {
		t.Run(name, func(t *testing.T) {
			namespace := servertest.Namespace(t, s)
			maps := client.CoreV1().ConfigMaps(namespace)
			ctx := t.Context()
			create := func(name string) error {
				_, err := maps.Create(ctx, configMap(name), metav1.CreateOptions{})
				return err
			}
			exists := func(name string) bool {
				_, err := maps.Get(ctx, name, metav1.GetOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("get %s: %v", name, err)
				}
				return err == nil
			}
			rule := fault.Rule{Verb: "create", Resource: "configmaps", Namespace: namespace,
				Times: 1}

			f := servertest.Fault(t, s, rule, fault.Fail(apierrors.NewForbidden(
				corev1.Resource("configmaps"), "a", errors.New("not now"))))
			if err := create("a"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not now") {
				t.Errorf("status: %v", err)
			}
			if hits := f.Hits(); len(hits) != 1 || hits[0].Verb != "create" ||
				hits[0].Namespace != namespace || hits[0].User == "" || hits[0].UserAgent == "" {
				t.Errorf("hits: %+v", hits)
			}
			servertest.Fault(t, s, rule, fault.TimeOut())
			if err := create("a"); !apierrors.IsTimeout(err) || exists("a") {
				t.Errorf("timed out: %v", err)
			}
			servertest.Fault(t, s, rule, fault.Cut())
			if err := create("a"); err == nil || apierrors.ReasonForError(err) != "" || exists("a") {
				t.Errorf("connection cut: %v", err)
			}
			servertest.Fault(t, s, rule, fault.LoseAnswer())
			if err := create("a"); err == nil || apierrors.ReasonForError(err) != "" || !exists("a") {
				t.Errorf("answer lost: %v", err)
			}

			second := rule
			second.Skip = 1
			servertest.Fault(t, s, second, fault.TimeOut())
			if err := errors.Join(create("b"), create("c")); !apierrors.IsTimeout(err) || !exists("b") {
				t.Errorf("the second of two requests: %v", err)
			}
			named := rule
			named.Name = "named"
			servertest.Fault(t, s, named, fault.TimeOut())
			if err := errors.Join(create("other"), create("named")); !apierrors.IsTimeout(err) ||
				!exists("other") || exists("named") {
				t.Errorf("the one with the name: %v", err)
			}

			written := rule
			written.Verb = ""
			servertest.Fault(t, s, written, fault.Conflict())
			if err := create("d"); err != nil {
				t.Errorf("a conflict of a create: %v", err)
			}
			if _, err := maps.Patch(ctx, "d", types.MergePatchType, []byte(`{"data":{"a":"b"}}`),
				metav1.PatchOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("conflict: %v", err)
			}
		})
	}
}

// Retry-After is a header, which client-go obeys.
func TestFaultRetryAfter(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	servertest.Fault(t, s, fault.Rule{Path: "/version", Times: 1},
		fault.Fail(apierrors.NewTooManyRequests("busy", 7)))
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Get(s.URL() + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "7" ||
		!strings.Contains(string(body), `"message":"busy"`) {
		t.Errorf("%s %v %s %v", r.Status, r.Header, body, err)
	}
}

// nextEvent returns the next event of a watch, or an empty one if the watch has ended.
func nextEvent(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		return e
	case <-time.After(time.Minute):
		t.Fatal("there was no event in a minute")
		return watch.Event{}
	}
}

// Each fault of a watch hits those that run and those that begin.
func TestFaultsOfWatches(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	for name, client := range faultClients(t, s) {
		t.Run(name, func(t *testing.T) {
			namespace := servertest.Namespace(t, s)
			maps := client.CoreV1().ConfigMaps(namespace)
			others := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps(namespace)
			ctx := t.Context()
			begin := func(maps typedcore.ConfigMapInterface) watch.Interface {
				list, err := maps.List(ctx, metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Stop)
				return w
			}
			// touch creates and deletes, which is two events
			touch := func() {
				_, err := maps.Create(ctx, configMap("a"), metav1.CreateOptions{})
				if err = errors.Join(err, maps.Delete(ctx, "a", metav1.DeleteOptions{})); err != nil {
					t.Fatal(err)
				}
			}
			rule := fault.Rule{Verb: "watch", Resource: "configmaps", Namespace: namespace,
				Times: 1}

			running := begin(maps)
			servertest.Fault(t, s, rule, fault.EndWatch())
			if e := nextEvent(t, running); e.Type != "" {
				t.Errorf("ended: %+v", e)
			}
			servertest.Fault(t, s, rule, fault.EndWatch())
			if e := nextEvent(t, begin(maps)); e.Type != "" {
				t.Errorf("ended at once: %+v", e)
			}
			running = begin(maps)
			servertest.Fault(t, s, rule, fault.ExpireWatch())
			if e := nextEvent(t, running); e.Type != watch.Error ||
				!apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
				t.Errorf("expired: %+v", e)
			}
			servertest.Fault(t, s, rule, fault.ExpireWatch())
			if _, err := maps.Watch(ctx, metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
				t.Errorf("expired at once: %v", err)
			}
			running = begin(maps)
			servertest.Fault(t, s, rule, fault.BreakWatch())
			if e := nextEvent(t, running); e.Type != "" && e.Type != watch.Error {
				t.Errorf("broken: %+v", e)
			}
			servertest.Fault(t, s, rule, fault.Delay(time.Millisecond))
			running = begin(maps)
			servertest.Fault(t, s, rule, fault.ExpireWatch())
			if e := nextEvent(t, running); e.Type != watch.Error {
				t.Errorf("expired after a delay: %+v", e)
			}

			rule.Times, rule.UserAgent = 0, name
			for _, first := range []bool{false, true} {
				var f *servertest.Injected
				if first {
					f = servertest.Fault(t, s, rule, fault.HoldWatch())
				}
				w := begin(maps)
				if !first {
					f = servertest.Fault(t, s, rule, fault.HoldWatch())
				}
				touch()
				other := begin(others)
				touch() // so that the first one could have these too
				for range 2 {
					nextEvent(t, other)
				}
				select {
				case e := <-w.ResultChan():
					t.Errorf("held back: %+v", e)
				default:
				}
				f.Release()
				for range 4 {
					if e := nextEvent(t, w); e.Type != watch.Added && e.Type != watch.Deleted {
						t.Errorf("released: %+v", e)
					}
				}
			}
		})
	}
}

// A watch whose answer is lost ends at once. client-go would try again.
func TestFaultOfWatchWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	servertest.Fault(t, s, fault.Rule{Verb: "watch"}, fault.LoseAnswer())
	inProcess, err := s.InProcessConfig("jane", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range []*rest.Config{s.RESTConfig(), inProcess} {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Get(s.URL() + "/api/v1/configmaps?watch=true")
		if err == nil {
			r.Body.Close()
			t.Errorf("the answer is %s", r.Status)
		}
	}
}

// A frozen view is one of the past for all reads, until it is released.
func TestFaultFrozen(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	client, stale := kubernetes.NewForConfigOrDie(s.RESTConfig()), s.RESTConfig()
	stale.UserAgent = "stale"
	namespace := servertest.Namespace(t, s)
	ctx, maps := t.Context(), client.CoreV1().ConfigMaps(namespace)
	old := kubernetes.NewForConfigOrDie(stale).CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(ctx, configMap("old"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	running, err := old.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer running.Stop()
	if e := nextEvent(t, running); e.Type != watch.Added {
		t.Fatalf("%+v", e)
	}
	f := servertest.Fault(t, s, fault.Rule{UserAgent: "stale"}, fault.Freeze())
	if _, err := maps.Create(ctx, configMap("new"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Get(ctx, "old", metav1.GetOptions{}); err != nil {
		t.Errorf("get of what was deleted: %v", err)
	}
	if _, err := old.Get(ctx, "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of what was created: %v", err)
	}
	var version string
	for _, options := range []metav1.ListOptions{{}, {ResourceVersion: "0"}, {Limit: 1}} {
		list, err := old.List(ctx, options)
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != "old" {
			t.Errorf("list with %+v: %+v, %v", options, list, err)
		}
		version = list.ResourceVersion
	}
	synced := make(chan string, 10)
	informer := coreinformers.NewConfigMapInformer(kubernetes.NewForConfigOrDie(stale), namespace, 0,
		cache.Indexers{})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { synced <- "+" + o.(*corev1.ConfigMap).Name },
		DeleteFunc: func(o any) { synced <- "-" + o.(*corev1.ConfigMap).Name },
	}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(ctx)
	next := func() string {
		select {
		case name := <-synced:
			return name
		case <-time.After(time.Minute):
			t.Fatal("the informer says nothing")
			return ""
		}
	}
	if name := next(); name != "+old" {
		t.Errorf("the informer begins with %s", name)
	}
	watching, err := old.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	select {
	case e := <-watching.ResultChan():
		t.Errorf("a watch of the past has %+v", e)
	case e := <-running.ResultChan():
		t.Errorf("a watch that was running has %+v", e)
	case name := <-synced:
		t.Errorf("the informer has %s", name)
	case <-time.After(100 * time.Millisecond):
	}
	f.Release()
	for _, w := range []watch.Interface{watching, running} {
		if e := nextEvent(t, w); e.Type != watch.Added {
			t.Errorf("the first event is %+v", e)
		}
		if e := nextEvent(t, w); e.Type != watch.Deleted {
			t.Errorf("the second event is %+v", e)
		}
	}
	if first, second := next(), next(); first != "+new" || second != "-old" {
		t.Errorf("the informer goes on with %s, %s", first, second)
	}
	if _, err := old.Get(ctx, "new", metav1.GetOptions{}); err != nil {
		t.Errorf("get after the release: %v", err)
	}
}

// A view that lags behind follows at a distance.
func TestFaultBehind(t *testing.T) {
	t.Parallel()
	// No time passes, so the server writes nothing itself, for which the view would be behind, too.
	synctest.Test(t, faultBehind)
}

func faultBehind(t *testing.T) {
	s := servertest.Run(t, servertest.InBubble, servertest.WithoutControllers)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	ctx, maps := t.Context(), client.CoreV1().ConfigMaps(servertest.Namespace(t, s))
	f := servertest.Fault(t, s, fault.Rule{Verb: "get,list,watch", Resource: "configmaps"},
		fault.Lag(2))
	defer f.Release()
	w, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for i, name := range []string{"a", "b", "c", "d"} {
		if _, err := maps.Create(ctx, configMap(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		list, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, item := range list.Items {
			got += item.Name
		}
		if want := "abcd"[:max(0, i-1)]; got != want {
			t.Errorf("after %s: a list has %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"a", "b"} {
		e := nextEvent(t, w)
		if object, ok := e.Object.(*corev1.ConfigMap); !ok || object.Name != name {
			t.Errorf("the event is %+v, want that of %s", e, name)
		}
	}
	synctest.Wait()
	select {
	case e := <-w.ResultChan():
		t.Errorf("the watch is not behind: %+v", e)
	default:
	}
}

// An outage hits all clients, but neither the control plane itself nor the requests for faults.
func TestFaultOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.InBubble)
		client := kubernetes.NewForConfigOrDie(s.RESTConfig())
		w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f := servertest.Fault(t, s, fault.Rule{For: metav1.Duration{Duration: time.Hour}},
			fault.Cut())
		for range w.ResultChan() {
		}
		ask := func() error {
			_, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			return err
		}
		for range 6 {
			if err := ask(); err == nil {
				t.Error("there is an answer in the outage")
			}
			time.Sleep(10*time.Minute - time.Second)
		}
		time.Sleep(time.Minute)
		if err := ask(); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		if hits := f.Hits(); len(hits) < 7 || hits[0].Verb != "watch" {
			t.Errorf("hits: %v", hits)
		}
	})
}

// A fault can hit a control loop by its name.
func TestFaultOfLoop(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	f := servertest.Fault(t, s, fault.Rule{
		UserAgent: "replicaset-controller", Verb: "create", Resource: "pods", Times: 2,
	}, fault.LoseAnswer())
	servertest.Apply(t, s, "default", servertest.YAML(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
`))
	f.Await(2)
	for _, hit := range f.Hits() {
		if !strings.HasSuffix(hit.UserAgent, "/replicaset-controller") {
			t.Errorf("the hit is %+v", hit)
		}
	}
	eventually(t, "the deployment has its replicas", func() error {
		d, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).AppsV1().Deployments("default").Get(
			t.Context(), "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 3 {
			err = errors.New("not all are available")
		}
		return err
	})
}

// Only administrators see and add faults, and invalid faults are refused.
func TestAttackFaults(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	ctx := t.Context()
	user, err := s.User("jane")
	if err != nil {
		t.Fatal(err)
	}
	cut := fault.Spec{Effect: fault.Cut()}
	if _, err := fault.Add(ctx, user, cut); !apierrors.IsForbidden(err) {
		t.Errorf("jane adds a fault: %v", err)
	}
	if _, err := fault.All(ctx, user); !apierrors.IsForbidden(err) {
		t.Errorf("jane lists faults: %v", err)
	}
	if err := fault.RemoveAll(ctx, user); !apierrors.IsForbidden(err) {
		t.Errorf("jane removes faults: %v", err)
	}
	admin := s.RESTConfig()
	for _, f := range []fault.Spec{
		{},
		{Effect: fault.Fail(&apierrors.StatusError{ErrStatus: metav1.Status{Code: 200}})},
		{Effect: fault.Delay(-1)},
		{Effect: fault.Lag(0)},
		{Effect: fault.Conflict(), Rule: fault.Rule{Verb: "list"}},
		{Effect: fault.Cut(), Rule: fault.Rule{Path: "["}},
		{Effect: fault.Cut(), Rule: fault.Rule{Times: -1}},
		{Effect: fault.Cut(), Rule: fault.Rule{Chance: 1.5}},
	} {
		if _, err := fault.Add(ctx, admin, f); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", f.String(), err)
		}
	}
	if _, err := fault.Get(ctx, admin, "7"); !apierrors.IsNotFound(err) {
		t.Errorf("get of a fault that is not there: %v", err)
	}
	cut.Rule.Resource = "widgets"
	for range 1000 {
		if _, err := fault.Add(ctx, admin, cut); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fault.Add(ctx, admin, cut); !apierrors.IsBadRequest(err) {
		t.Errorf("one too many: %v", err)
	}
	if err := fault.RemoveAll(ctx, admin); err != nil {
		t.Error(err)
	}
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"effect":{"type":"explode"}}`, `{"effect":{"type":"fail"}}`,
		`{"effect":{"type":"cut","x":1}}`,
		`{"effect":{"type":"delay","delay":1}}`,
	} {
		r, err := client.Post(s.URL()+fault.Path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", body, r.Status)
		}
	}

	// What a fault remembers of a request is bounded.
	all := servertest.Fault(t, s, fault.Rule{Path: "/version"}, fault.TimeOut())
	r, err := client.Get(s.URL() + "/version?" + strings.Repeat("x", 100_000))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if hits := all.Hits(); len(hits) != 1 || len(hits[0].URI) > 2000 {
		t.Errorf("%d hits, and the first has a URI of %d bytes", len(hits), len(hits[0].URI))
	}
}
