package apitest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/server/internal/dashboard"
)

// A deployment, its pods and a secret are gone, but can be looked at as they were.
func TestDashboardMoments(t *testing.T) {
	t.Parallel()
	s, client := quiet(t)
	p := openDashboard(t, s, dashboard.Options{})
	deployments := client.AppsV1().Deployments("default")
	web, err := deployments.Create(t.Context(), webDeployment(1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := namedPod("web-a")
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "Deployment", Name: web.Name, UID: web.UID,
	}}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hidden"},
		StringData: map[string]string{"password": "extremely secret"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	then := secret.ResourceVersion
	for _, err := range []error{
		client.CoreV1().Secrets("default").Delete(t.Context(), "hidden", metav1.DeleteOptions{}),
		client.CoreV1().Pods("default").Delete(t.Context(), "web-a", *metav1.NewDeleteOptions(0)),
		deployments.Delete(t.Context(), "web", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	known, err := history.Moments(t.Context(), s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	secretAt, err := strconv.ParseInt(then, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	deleted := slices.IndexFunc(known, func(m history.Moment) bool {
		return m.Revision > secretAt && m.Writes > 0 &&
			slices.ContainsFunc(m.Writers, func(w history.Writer) bool {
				return strings.HasPrefix(w.UserAgent, "apitest")
			})
	})
	if deleted < 0 {
		t.Fatalf("of the moments %+v, none is that of the deletions", known)
	}
	if !slices.IsSortedFunc(known, func(a, b history.Moment) int {
		return int(a.Revision - b.Revision)
	}) {
		t.Errorf("the moments are %v", known)
	}
	moments := read[[]struct {
		Revision int64
		People   []string
	}](p, "/moments", nil)
	if m := moments[deleted]; len(m.People) != 1 ||
		m.People[0] != "apitest.test as kubernetes-super-admin" {
		t.Errorf("on the page, the moment of the deletions is %+v", m)
	}

	at := func(q url.Values, revision string) string {
		q.Set("at", revision)
		return q.Encode()
	}
	list := func(resource, group, revision string) func(string, func(string) bool) string {
		return p.events("/objects?" + at(url.Values{
			"group": {group}, "version": {"v1"}, "resource": {resource}, "namespace": {"default"},
		}, revision))
	}
	list("deployments", "apps", then)("list", hasText(`"web"`))
	last := fmt.Sprint(known[len(known)-1].Revision)
	list("deployments", "apps", last)("list", hasText(`"rows":[]`))
	object := p.events("/objects?only=1&" + at(ofObject("", "secrets", "default", "hidden"), then))
	if one := object("object", hasText("kind: Secret")); strings.Contains(one, "secret\"") ||
		!strings.Contains(one, "apiVersion: v1") {
		t.Errorf("the secret is shown as %s", one)
	}
	p.events("/objects?only=1&"+at(ofObject("", "pods", "default", "nobody"), then))("object",
		hasText(`pods \"nobody\" was not there at revision `+then))
	tree := read[struct {
		Root struct{ Owned []struct{ Name string } }
	}](p, "/tree",
		urlQuery(t, at(ofObject("apps", "deployments", "default", "web"), then)))
	if owned := tree.Root.Owned; len(owned) != 1 || owned[0].Name != "web-a" {
		t.Errorf("the deployment owned %+v", owned)
	}
	list("pods", "", "999999")("failed", hasText("cannot be listed"))
	for _, wrong := range []string{"0", "-1", "now", "1&a=b"} {
		q := ofObject("", "pods", "default", "")
		if code, body := p.get("/objects?" + at(q, wrong)); code != http.StatusBadRequest {
			t.Errorf("at %s got %d: %s", wrong, code, body)
		}
	}
	if strings.Contains(p.seen.all(), "extremely") {
		t.Error("the browser has received the secret")
	}

	// Who may not get the URL does not learn who wrote.
	config := rest.CopyConfig(s.RESTConfig())
	config.Impersonate.UserName = "jane"
	if _, err := history.Moments(t.Context(), config); err == nil ||
		!strings.Contains(err.Error(), "forbidden") {
		t.Errorf("the moments for jane: %v", err)
	}
	jane := kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient()
	if err := jane.Post().AbsPath(history.MomentsPath).Do(t.Context()).Error(); err == nil {
		t.Error("jane may post to the moments")
	}
	err = client.CoreV1().RESTClient().Post().AbsPath(history.MomentsPath).Do(t.Context()).Error()
	if !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a post to the moments: %v", err)
	}
}

func urlQuery(t *testing.T, text string) url.Values {
	t.Helper()
	q, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}
