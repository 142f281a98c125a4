package apitest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/trace"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// follow returns the requests that a follower gets. It returns after the follower has got the first
// one, a request for /version.
func follow(t *testing.T, config *rest.Config, o trace.FollowOptions) <-chan trace.Request {
	t.Helper()
	requests, ended := make(chan trace.Request, 1000), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	go func() {
		ended <- trace.Follow(ctx, config, o, func(r trace.Request) { requests <- r })
	}()
	client := kubernetes.NewForConfigOrDie(config)
	for {
		if _, err := client.Discovery().ServerVersion(); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-requests:
			if r.Path == "/version" {
				return requests
			}
		case err := <-ended:
			ended <- err
			t.Fatal("the stream has ended")
		case <-time.After(time.Millisecond):
		}
	}
}

// followNext returns the next request that a condition selects.
func followNext(
	t *testing.T, requests <-chan trace.Request, wanted func(trace.Request) bool,
) trace.Request {
	t.Helper()
	for {
		select {
		case r := <-requests:
			if wanted(r) {
				return r
			}
		case <-time.After(time.Minute):
			t.Fatal("the request is not reported")
		}
	}
}

func followed(method, path string) func(trace.Request) bool {
	return func(r trace.Request) bool { return r.Method == method && r.Path == path }
}

func TestFollow(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	requests := follow(t, s.RESTConfig(), trace.FollowOptions{Objects: true})
	jane, err := s.InProcessConfig("jane", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	jane.UserAgent = "followed/1.0"
	client := kubernetes.NewForConfigOrDie(jane).CoreV1()
	created, err := client.Pods("default").Create(t.Context(), namedPod("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := followNext(t, requests, followed(http.MethodPost, "/api/v1/namespaces/default/pods"))
	if r.User != "jane" || r.Verb != "create" || r.Resource != "pods" ||
		r.Code != http.StatusCreated || r.Bytes == 0 || r.Took == 0 || r.Received.IsZero() ||
		r.UserAgent != "followed/1.0" {
		t.Errorf("got %+v", r)
	}
	expectSteps(t, r.Steps, "decoding: decoded v1", "mutating admission: changed Priority",
		"strategy: prepared", "validation: valid", "etcd: write")
	at := map[string]corev1.Pod{} // by place
	for _, step := range r.Steps {
		var object corev1.Pod
		if step.Object != nil && json.Unmarshal(step.Object, &object) != nil {
			t.Errorf("%s has the object %s", step.At, step.Object)
		}
		at[step.At] = object
	}
	if decoded := at["decoding"]; decoded.Spec.RestartPolicy != corev1.RestartPolicyAlways ||
		decoded.Spec.Priority != nil {
		t.Errorf("decoded: %+v", decoded)
	}
	if admitted := at["mutating admission"]; admitted.Spec.Priority == nil || admitted.UID != "" {
		t.Errorf("after admission: %+v", admitted)
	}
	if prepared := at["strategy"]; prepared.UID != created.UID {
		t.Errorf("after the strategy, the uid is %q, not %q", prepared.UID, created.UID)
	}

	watch, err := client.Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	r = followNext(t, requests, followed(http.MethodGet, "/api/v1/namespaces/default/pods?watch=true"))
	if r.Verb != "watch" || r.Code != http.StatusOK {
		t.Errorf("a watch that has begun: %+v", r)
	}
	// Nobody follows followers.
	other := follow(t, s.RESTConfig(), trace.FollowOptions{})
	if _, err := client.Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	r = followNext(t, other, func(r trace.Request) bool {
		return r.Path == "/api/v1/nodes" || strings.HasPrefix(r.Path, trace.FollowPath)
	})
	if r.Path != "/api/v1/nodes" {
		t.Errorf("the follower follows %s", r.Path)
	}
	for _, step := range r.Steps {
		if step.Object != nil {
			t.Errorf("%s has the object %s", step.At, step.Object)
		}
	}
}

const followedDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.simple.extension.io}
spec:
  group: simple.extension.io
  names: {plural: crontabs, singular: crontab, kind: CronTab}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// What updates and patches change appears too, also in custom resources.
func TestFollowUpdates(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	servertest.CRDs(t, s, servertest.YAML(followedDefinition))
	requests := follow(t, s.RESTConfig(), trace.FollowOptions{Objects: true})
	client := dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(schema.GroupVersionResource{
		Group: "simple.extension.io", Version: "v1", Resource: "crontabs",
	}).Namespace("default")
	tab := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "simple.extension.io/v1", "kind": "CronTab",
		"metadata": map[string]any{"name": "nightly"}, "spec": map[string]any{"hour": int64(1)},
	}}
	created, err := client.Create(t.Context(), tab, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const path = "/apis/simple.extension.io/v1/namespaces/default/crontabs"
	r := followNext(t, requests, followed(http.MethodPost, path))
	object := func(at, field string) any {
		i := slices.IndexFunc(r.Steps, func(s trace.Step) bool { return s.At == at })
		if i < 0 {
			t.Errorf("no step %s among %+v", at, r.Steps)
			return nil
		}
		var o map[string]any
		if err := json.Unmarshal(r.Steps[i].Object, &o); err != nil {
			t.Errorf("%s: %v", at, err)
		}
		part, _, _ := unstructured.NestedFieldNoCopy(o, strings.Split(field, ".")...)
		return part
	}
	hour, uid := object("decoding", "spec.hour"), object("strategy", "metadata.uid")
	if hour != 1.0 || uid != string(created.GetUID()) {
		t.Errorf("hour %v was decoded, and uid %v prepared", hour, uid)
	}
	created.Object["spec"] = map[string]any{"hour": int64(2)}
	if _, err := client.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r = followNext(t, requests, followed(http.MethodPut, path+"/nightly"))
	hour, gen := object("decoding", "spec.hour"), object("strategy", "metadata.generation")
	if hour != 2.0 || gen != 2.0 {
		t.Errorf("hour %v was decoded, and generation %v prepared", hour, gen)
	}
	if _, err := client.Patch(t.Context(), "nightly", types.MergePatchType,
		[]byte(`{"spec":{"hour":3}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r = followNext(t, requests, followed(http.MethodPatch, path+"/nightly"))
	hour, gen = object("patching", "spec.hour"), object("strategy", "metadata.generation")
	if hour != 3.0 || gen != 3.0 {
		t.Errorf("hour %v is patched, and generation %v prepared", hour, gen)
	}
}

func TestFollowSome(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	user := s.RESTConfig()
	all := follow(t, user, trace.FollowOptions{})
	requests := make(chan trace.Request, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := trace.Follow(ctx, user, trace.FollowOptions{
			Method: "POST", PathPrefix: "/api/v1/namespaces/default/", User: "kubernetes-super-admin",
		}, func(r trace.Request) { requests <- r })
		if err != nil {
			t.Error(err)
		}
	}()
	defer func() { cancel(); <-ended }()
	for i := 0; ; i++ { // until the follower is connected
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), namedPod("web"),
			metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default",
			metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		followNext(t, all, followed(http.MethodGet, "/api/v1/namespaces/default"))
		if len(requests) > 3 {
			break
		}
	}
	for len(requests) > 0 {
		if r := <-requests; r.Method != "POST" || r.User != "kubernetes-super-admin" ||
			!strings.HasPrefix(r.Path, "/api/v1/namespaces/default/pods") {
			t.Errorf("got %+v", r)
		}
	}
}

// Nothing secret appears in what a follower gets.
func TestFollowSecrets(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	labelling(t, s)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	awaitDefaultAccount(t, client)
	requests := follow(t, s.RESTConfig(), trace.FollowOptions{Objects: true})
	const data = "hunter2"
	secret, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"password": data},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.StringData = map[string]string{"other": data}
	if _, err := client.CoreV1().Secrets("default").Update(t.Context(), secret,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: data}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &authenticationv1.TokenRequest{}
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", account,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		r := followNext(t, requests, func(trace.Request) bool { return true })
		encoded, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{data, "aHVudGVyMg", token.Status.Token} {
			if strings.Contains(string(encoded), secret) {
				t.Errorf("%s appears in %s", secret, encoded)
			}
		}
		done = r.Resource == "serviceaccounts/token"
	}
}

// A server that stops ends the streams of its followers, and one may not follow without permission.
func TestFollowersOfStoppedServer(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) { o.AuthorizationModes = []string{"RBAC"} })
	jane, err := s.User("jane")
	if err != nil {
		t.Fatal(err)
	}
	err = trace.Follow(t.Context(), jane, trace.FollowOptions{}, func(trace.Request) {})
	if err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("jane may follow requests: %v", err)
	}
	ended := make(chan error, 1)
	first := make(chan struct{}, 1)
	go func() {
		ended <- trace.Follow(t.Context(), s.RESTConfig(), trace.FollowOptions{}, func(trace.Request) {
			select {
			case first <- struct{}{}:
			default:
			}
		})
	}()
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	for connected := false; !connected; {
		if _, err := client.Discovery().ServerVersion(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-first:
			connected = true
		default:
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A follower that does not keep up loses requests and learns how many.
func TestFollowerThatIsSlow(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	config, err := s.InProcessConfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	proceed, dropped := make(chan struct{}), make(chan int, 10_000)
	started := make(chan struct{}, 10_000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- trace.Follow(ctx, config, trace.FollowOptions{PathPrefix: "/version"},
			func(r trace.Request) {
				started <- struct{}{}
				<-proceed
				if r.Dropped > 0 {
					dropped <- r.Dropped
				}
			})
	}()
	client := kubernetes.NewForConfigOrDie(config)
	get := func() {
		if _, err := client.Discovery().ServerVersion(); err != nil {
			t.Fatal(err)
		}
	}
	for len(started) == 0 {
		get()
	}
	for range 3000 {
		get()
	}
	close(proceed)
	for len(dropped) == 0 {
		get()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("%d requests were dropped", <-dropped)
}
