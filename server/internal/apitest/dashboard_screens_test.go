package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/dashboard"
	"github.com/kinproc/kinproc/server/servertest"
)

// read gets a path of the dashboard as JSON.
func read[T any](p *dashboardPage, path string, query url.Values) T {
	p.t.Helper()
	var value T
	code, body := p.get(path + "?" + query.Encode())
	if code != http.StatusOK {
		p.t.Fatalf("%s?%s got %d: %s", path, query.Encode(), code, body)
	}
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		p.t.Fatal(err)
	}
	return value
}

// ofObject is the query for an object of group and resource.
func ofObject(group, resource, inside, name string) url.Values {
	return url.Values{
		"group": {group}, "version": {"v1"}, "resource": {resource}, "inside": {inside}, "name": {name},
	}
}

func webDeployment(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
}

// liveSummary is a request in the stream of the chain.
type liveSummary struct {
	ID                              int
	Method, Path, User, Client, End string
	Code                            int
	Loop                            bool
}

func liveRequests(t *testing.T, data string) []liveSummary {
	t.Helper()
	var passed struct{ Requests []liveSummary }
	if err := json.Unmarshal([]byte(data), &passed); err != nil {
		t.Fatal(err)
	}
	return passed.Requests
}

func TestDashboardLoopsAreHidden(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	p := openDashboard(t, s, dashboard.Options{})
	without := p.events("/live")
	with := p.events("/live?loops=1&path=pods") // an event shows few of the requests of a moment
	p.awaitFollowing(s)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	deployments := client.AppsV1().Deployments("default")
	if _, err := deployments.Create(t.Context(), webDeployment(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hidden := without("passed", func(data string) bool { return !strings.Contains(data, `"hidden":0`) })
	for _, r := range liveRequests(t, hidden) {
		if r.Loop {
			t.Errorf("%s %s of %s is shown", r.Method, r.Path, r.Client)
		}
	}
	if !strings.Contains(hidden, `"took":{`) && strings.Contains(hidden, `"count"`) {
		t.Errorf("the groups have no durations: %s", hidden)
	}
	// A reconcile of the replica set creates two pods and an event for each.
	var related []liveSummary
	for deadline := time.Now().Add(time.Minute); ; {
		created := with("passed", hasText(`"path":"/api/v1/namespaces/default/pods","user":"system:`))
		requests := liveRequests(t, created)
		i := slices.IndexFunc(requests, func(r liveSummary) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/pods")
		})
		if i < 0 || requests[i].Client != "replicaset-controller" || !requests[i].Loop {
			t.Fatalf("the pod is created by %+v", requests)
		}
		// The others of the same reconcile may still be on their way.
		related = nil
		for soon := time.Now().Add(5 * time.Second); len(related) < 2 && time.Now().Before(soon); {
			related = read[[]liveSummary](p, fmt.Sprintf("/live/%d/related", requests[i].ID), nil)
		}
		if len(related) > 1 || time.Now().After(deadline) {
			break
		}
		// On a busy machine, the requests of a reconcile may be so far apart that they do not seem
		// to belong together. So there is another reconcile.
		if err := client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pods := 0
	for _, r := range related {
		if r.Client != "replicaset-controller" {
			t.Errorf("%s %s of %s belongs to another loop", r.Method, r.Path, r.Client)
		}
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/pods") {
			pods++
		}
	}
	if pods == 0 || len(related) < 2 {
		t.Errorf("the work has %d requests, of which %d create pods", len(related), pods)
	}
	if code, _ := p.get("/live/99999999/related"); code != http.StatusNotFound {
		t.Errorf("the work of an unknown request got %d", code)
	}
}

func TestDashboardLiveFilters(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	p := openDashboard(t, s, dashboard.Options{})
	for _, query := range []string{"code=abc", "code=0", "slow=x", "slow=-1", "at=elsewhere"} {
		if code, body := p.get("/live?" + query); code != http.StatusBadRequest {
			t.Errorf("%s got %d: %s", query, code, body)
		}
	}
	config := s.RESTConfig()
	config.UserAgent = "dashboard-filters/1.0 (test)"
	client := kubernetes.NewForConfigOrDie(config).RESTClient()
	none := p.events("/live?agent=dashboard-filters&slow=600000&loops=1")
	missing := p.events("/live?code=4xx&at=not+found&agent=dashboard-filters")
	exact := p.events("/live?code=404&agent=dashboard-filters&slow=0")
	p.repeat(func() {
		client.Get().AbsPath("/nothing/at/all").Do(t.Context())
		client.Get().AbsPath("/version").Do(t.Context())
	}, func() {
		for _, await := range []dashboardAwait{missing, exact} {
			for _, r := range liveRequests(t, await("passed", hasText("/nothing/at/all"))) {
				if r.Code != http.StatusNotFound || r.Client != "dashboard-filters" || r.End != "not found" {
					t.Errorf("the filter selects %+v", r)
				}
			}
		}
	})
	_ = none // nothing is that slow, so the stream sends nothing
}

type dashboardVersion struct {
	Revision                         int64
	Event, User, As, Client, Manager string
	Changes                          []string
	YAML                             string
	Spec, Loop                       bool
}

func TestDashboardHistory(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1()
	ctx := t.Context()
	one := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"color": "green"},
	}
	_, err1 := client.ConfigMaps("default").Create(ctx, one, metav1.CreateOptions{})
	_, err2 := client.ConfigMaps("default").Patch(ctx, "one", types.MergePatchType,
		[]byte(`{"data":{"color":"blue"}}`), metav1.PatchOptions{FieldManager: "painter"})
	err3 := client.ConfigMaps("default").Delete(ctx, "one", metav1.DeleteOptions{})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hush"}, StringData: map[string]string{"a": "Correct-Horse"},
	}
	_, err4 := client.Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
	_, err5 := client.Secrets("default").Patch(ctx, "hush", types.MergePatchType,
		[]byte(`{"stringData":{"a":"Battery-Staple"}}`), metav1.PatchOptions{})
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h := read[struct{ Versions []dashboardVersion }](p, "/history",
		ofObject("", "configmaps", "default", "one"))
	if len(h.Versions) != 3 {
		t.Fatalf("the history has %d versions: %+v", len(h.Versions), h)
	}
	for i, event := range []string{"created", "updated", "deleted"} {
		if v := h.Versions[i]; v.Event != event || v.User != "kubernetes-super-admin" {
			t.Errorf("version %d is %+v", i, v)
		}
	}
	if v := h.Versions[1]; v.Manager != "painter" || !strings.Contains(v.YAML, "color: blue") ||
		len(v.Changes) != 1 || v.Changes[0] != `~ .data.color: "green" → "blue"` {
		t.Errorf("the update is %+v", v)
	}
	hush := read[struct{ Versions []dashboardVersion }](p, "/history",
		ofObject("", "secrets", "default", "hush"))
	if len(hush.Versions) != 2 || !strings.Contains(hush.Versions[1].YAML, "bytes, not shown") {
		t.Errorf("the history of a secret is %+v", hush)
	}
	// no other screen says more
	for _, path := range []string{
		"/home", "/search?text=hush", "/inventory", "/counts", "/kinds",
		"/tree?" + ofObject("", "secrets", "default", "hush").Encode(),
		"/events?" + ofObject("", "secrets", "default", "hush").Encode(),
	} {
		if code, body := p.get(path); code != http.StatusOK {
			t.Errorf("%s got %d: %s", path, code, body)
		}
	}
	for _, hidden := range []string{"Correct-Horse", "Battery-Staple", "Q29ycmVjdC1I", "QmF0dGVyeS1T"} {
		if strings.Contains(p.seen.all(), hidden) {
			t.Errorf("%q was sent", hidden)
		}
	}
	if code, _ := p.get("/history?version=v1&resource=configmaps"); code != http.StatusBadRequest {
		t.Errorf("a history without a name got %d", code)
	}
}

type dashboardBranch struct {
	Kind, Name, State string
	Here              bool
	Owned             []dashboardBranch
}

func TestDashboardTreeAndSearch(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	p := openDashboard(t, s, dashboard.Options{})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	deployments := client.AppsV1().Deployments("default")
	if _, err := deployments.Create(t.Context(), webDeployment(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await := p.events("/objects?group=apps&version=v1&resource=deployments&namespace=default")
	await("list", hasText(`"state":"ready"`))
	found := read[struct {
		Found []struct{ Kind, Name, State string }
	}](p, "/search", url.Values{"text": {"WEB"}})
	kinds := map[string]int{}
	replicaSet := ""
	for _, f := range found.Found {
		kinds[f.Kind]++
		if f.Kind == "ReplicaSet" {
			replicaSet = f.Name
		}
	}
	if found.Found[0].Name != "web" || kinds["Pod"] != 2 || replicaSet == "" {
		t.Errorf("the search finds %+v", found)
	}
	// The tree of an object in the middle begins with its owner.
	tree := read[struct{ Root dashboardBranch }](p, "/tree",
		ofObject("apps", "replicasets", "default", replicaSet))
	root := tree.Root
	if root.Kind != "Deployment" || root.State != "ready" || len(root.Owned) != 1 ||
		!root.Owned[0].Here || len(root.Owned[0].Owned) != 2 ||
		root.Owned[0].Owned[1].Kind != "Pod" || root.Owned[0].Owned[1].State != "ready" {
		t.Errorf("the tree is %+v", root)
	}
	for _, path := range []string{"/search", "/search?text=+", "/tree?version=v1&resource=pods"} {
		if code, _ := p.get(path); code != http.StatusBadRequest {
			t.Errorf("%s got %d", path, code)
		}
	}
	// Labels and fields select, and a selector that is none says so.
	selected := p.events("/objects?version=v1&resource=pods&labels=app%3Dweb&fields=metadata.name%3Dx")
	if data := selected("list", hasText("rows")); !strings.Contains(data, `"rows":[]`) {
		t.Errorf("the fields select nothing less: %s", data)
	}
	p.events("/objects?version=v1&resource=pods&labels=%3D%3D")("failed",
		hasText("cannot be listed: found"))
	if names := read[[]string](p, "/namespaces", nil); !slices.Contains(names, "kube-system") {
		t.Errorf("the namespaces are %q", names)
	}
	if _, body := p.get("/kinds"); !strings.Contains(body, `"kind":"Deployment","namespaced":true,`+
		`"watchable":true,"verbs":["update","patch","delete","scale"],"short":["deploy"]`) {
		t.Errorf("the kinds lack what can be done with deployments: %s", body)
	}
}

func TestDashboardHome(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1()
	huge := namedPod("huge")
	huge.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"),
	}
	if _, err := client.Pods("default").Create(t.Context(), huge, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/api/v1/namespaces/default/resourcequotas": `{"apiVersion":"v1","kind":"ResourceQuota",
			"metadata":{"name":"small"},"spec":{"hard":{"count/pods":"1"}}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices": `{"apiVersion":"apiregistration.k8s.io/v1",
			"kind":"APIService","metadata":{"name":"v1.nobody.example.com"},"spec":{
			"group":"nobody.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":1,
			"insecureSkipTLSVerify":true,"service":{"name":"nobody","namespace":"default"}}}`,
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": `{
			"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",
			"metadata":{"name":"gone"},"webhooks":[{"name":"gone.example.com","sideEffects":"None",
			"admissionReviewVersions":["v1"],"failurePolicy":"Ignore","rules":[{"apiGroups":[""],
			"apiVersions":["v1"],"operations":["CREATE"],"resources":["bindings"]}],
			"clientConfig":{"service":{"name":"nobody","namespace":"default"}}}]}`,
	} {
		if _, answer := p.try(http.MethodPost, path, body, ""); !strings.Contains(answer, `"code":201`) {
			t.Fatalf("%s got %s", path, answer)
		}
	}
	deployments := kubernetes.NewForConfigOrDie(s.RESTConfig()).AppsV1().
		Deployments("kube-public") // where there is no quota
	broken := webDeployment(3)
	broken.Name, broken.Spec.Template.Spec.Containers[0].Image = "broken", "web:404"
	if _, err := deployments.Create(t.Context(), broken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	type dashboardReason struct {
		What, Why, Message string
		Objects            []struct{ Name string }
	}
	type dashboardCause struct {
		State, Kind, Name string
		Reasons           []dashboardReason
	}
	type dashboardHome struct {
		Causes   []dashboardCause
		Wrong    int
		Warnings struct{ Rows []struct{ Cells []any } }
		Changes  []dashboardVersion
		Failed   []string
	}
	want := map[string]string{
		"failing Deployment broken":                   "3 pods: image web:404 cannot be pulled",
		"pending Pod huge":                            "cannot be scheduled",
		"pending ResourceQuota small":                 "is used up: 1 of 1",
		"failing APIService v1.nobody.example.com":    "ServiceNotFound",
		"failing ValidatingWebhookConfiguration gone": "it is left out",
	}
	var h dashboardHome
	for deadline := time.Now().Add(time.Minute); ; {
		h = read[dashboardHome](p, "/home", nil)
		missing := 0
		for what, why := range want {
			if !slices.ContainsFunc(h.Causes, func(c dashboardCause) bool {
				return c.State+" "+c.Kind+" "+c.Name == what &&
					strings.Contains(c.Reasons[0].What+": "+c.Reasons[0].Why, why)
			}) {
				missing++
			}
		}
		if missing == 0 && len(h.Causes) == len(want) && len(h.Warnings.Rows) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d causes are missing in %+v", missing, h)
		}
	}
	if h.Causes[0].State != "failing" || len(h.Failed) > 0 {
		t.Errorf("the first cause is %+v, and failed %q", h.Causes[0], h.Failed)
	}
	if h.Wrong != len(want)+3 { // and the pods of the deployment
		t.Errorf("%d objects are not well: %+v", h.Wrong, h.Causes)
	}
	byDashboard := slices.ContainsFunc(h.Changes, func(v dashboardVersion) bool {
		return v.Event == "created" && v.User == "kinproc-dashboard"
	})
	byScheduler := slices.ContainsFunc(h.Changes, func(v dashboardVersion) bool {
		return v.Event == "updated" && v.Client == "kube-scheduler"
	})
	if !byDashboard || !byScheduler {
		t.Errorf("the changes of the last minute are %+v", h.Changes)
	}
}

// Of the versions of a Deployment that is scaled, few change what is wanted.
func TestDashboardHistoryTellsSpecFromStatus(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Workloads)
	p := openDashboard(t, s, dashboard.Options{})
	deployments := kubernetes.NewForConfigOrDie(s.RESTConfig()).AppsV1().Deployments("default")
	if _, err := deployments.Create(t.Context(), webDeployment(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scaled := false
	await(t, "two pods are ready, and then three", func() bool {
		d, err := deployments.Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas == 2 && !scaled {
			_, err = deployments.Patch(t.Context(), "web", types.MergePatchType,
				[]byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
			scaled = err == nil
		}
		return err == nil && d.Status.ReadyReplicas == 3
	})
	h := read[struct{ Versions []dashboardVersion }](p, "/history",
		ofObject("apps", "deployments", "default", "web"))
	var spec []string
	for _, v := range h.Versions {
		if v.Spec {
			spec = append(spec, v.Event)
		}
		if v.Spec == v.Loop {
			t.Errorf("a version of %s changes %q, spec is %t", v.Client, v.Changes, v.Spec)
		}
	}
	if !slices.Equal(spec, []string{"created", "updated"}) || len(h.Versions) < 5 {
		t.Errorf("of %d versions, %q change the specification", len(h.Versions), spec)
	}
}

func TestDashboardEventsAreNewestFirst(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	p := openDashboard(t, s, dashboard.Options{})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1()
	began := time.Now()
	for i, age := range []time.Duration{2 * time.Hour, time.Minute, time.Hour} {
		at := metav1.NewTime(began.Add(-age))
		_, err := client.Events(namespace).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("event-%d", i)},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "web", UID: "u"},
			Type:           []string{"Normal", "Warning", "Normal"}[i], Reason: fmt.Sprintf("Reason%d", i),
			FirstTimestamp: at, LastTimestamp: at, Count: 3,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	// The time of creation is that of now for all, so only their own times tell them apart.
	data := p.events("/objects?version=v1&resource=events&namespace="+namespace)("list",
		hasText("Reason2"))
	var list struct {
		Rows []struct {
			Name, State string
			At          time.Time
		}
	}
	if err := json.Unmarshal([]byte(data), &list); err != nil {
		t.Fatal(err)
	}
	for i, r := range list.Rows {
		if i > 0 && r.At.After(list.Rows[i-1].At) {
			t.Errorf("%s is newer than the one before", r.Name)
		}
		if (r.State == "failing") != (r.Name == "event-1") {
			t.Errorf("the state of %s is %q", r.Name, r.State)
		}
	}
	if len(list.Rows) != 3 {
		t.Errorf("there are %d events", len(list.Rows))
	}
	of := ofObject("", "pods", namespace, "web")
	of.Set("uid", "u")
	if about := read[struct{ Rows []any }](p, "/events", of); len(about.Rows) != 3 {
		t.Errorf("about the pod are %d events", len(about.Rows))
	}
}

func TestDashboardWalkCleansUp(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	var walked struct{ Created, Left string }
	code, body := p.do(p.request(http.MethodPost, "/walk", "{}"))
	if err := json.Unmarshal([]byte(body), &walked); err != nil || code != http.StatusOK {
		t.Fatalf("the walk got %d: %s", code, body)
	}
	pods := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Pods("default")
	_, err := pods.Get(t.Context(), walked.Created, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || walked.Left != "" {
		t.Errorf("the pod of the walk: %v, left %q", err, walked.Left)
	}
	h := read[struct{ Versions []dashboardVersion }](p, "/history",
		ofObject("", "pods", "default", walked.Created))
	if n := len(h.Versions); n < 2 || h.Versions[n-1].Event != "deleted" {
		t.Errorf("its history is %+v", h.Versions)
	}
}

// What the page shows in place of a secret must not become the secret.
func TestDashboardRefusesPlaceholders(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	code, body := p.try(http.MethodPost, "/api/v1/namespaces/"+namespace+"/secrets", "apiVersion: v1\n"+
		"kind: Secret\nmetadata: {name: x}\nstringData: {a: \"(3 bytes, not shown)\"}\n", "")
	if code != http.StatusBadRequest || !strings.Contains(body, "in place of a secret") {
		t.Errorf("a placeholder got %d: %s", code, body)
	}
	_, body = p.try(http.MethodPost, "/api/v1/namespaces/"+namespace+"/secrets", "apiVersion: v1\n"+
		"kind: Secret\nmetadata: {name: X}\n", "")
	if !strings.Contains(body, `"message":"Secret \"X\" is invalid`) {
		t.Errorf("a refusal of the control plane has no message: %s", body)
	}
}
