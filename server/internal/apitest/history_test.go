package apitest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/server/servertest"
)

var (
	configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secretResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// writeHistory creates, changes and deletes a config map as three different clients.
func writeHistory(t *testing.T, config *rest.Config, namespace, name string) {
	t.Helper()
	as := func(agent, impersonate string) *kubernetes.Clientset {
		config := rest.CopyConfig(config)
		config.UserAgent, config.Impersonate.UserName = agent, impersonate
		if impersonate != "" {
			config.Impersonate.Groups = []string{"system:masters"}
		}
		return kubernetes.NewForConfigOrDie(config)
	}
	ctx := t.Context()
	if _, err := as("creator/1.0", "").CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Data:       map[string]string{"size": "1"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := as("patcher/2.0 (linux)", "jane").CoreV1().ConfigMaps(namespace).Patch(ctx, name,
		types.MergePatchType, []byte(`{"data":{"size":"2","a.b":"new"}}`),
		metav1.PatchOptions{FieldManager: "sizer"}); err != nil {
		t.Fatal(err)
	}
	if err := as("remover/3.0", "").CoreV1().ConfigMaps(namespace).Delete(ctx, name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestHistoryOfAnObject(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	before := time.Now()
	writeHistory(t, s.RESTConfig(), "default", "limits")
	versions := servertest.History(t, s, configMapResource, "default", "limits")
	if len(versions) != 3 {
		t.Fatalf("%d versions, want 3: %+v", len(versions), versions)
	}
	want := []struct {
		event   string
		writer  history.Writer
		changes string
	}{
		{history.Created, history.Writer{
			User: "kubernetes-super-admin", UserAgent: "creator/1.0", Verb: "create", Manager: "creator",
		}, ""},
		{history.Updated, history.Writer{
			User: "jane", Impersonator: "kubernetes-super-admin", UserAgent: "patcher/2.0 (linux)",
			Verb: "patch", Manager: "sizer",
		}, `.data[a.b]  "new";.data.size "1" "2";`},
		{history.Deleted, history.Writer{
			User: "kubernetes-super-admin", UserAgent: "remover/3.0", Verb: "delete",
		}, ""},
	}
	for i, v := range versions {
		if v.Writer == nil || v.Time == nil {
			t.Fatalf("nobody knows who wrote version %d, or when", i)
		}
		changes := ""
		for _, c := range v.Changes {
			if strings.HasPrefix(c.Path, ".data") {
				changes += c.Path + " " + string(c.Before) + " " + string(c.After) + ";"
			}
		}
		if v.Event != want[i].event || *v.Writer != want[i].writer || changes != want[i].changes {
			t.Errorf("version %d: %s by %+v: %s, want %+v", i, v.Event, *v.Writer, changes, want[i])
		}
		if v.Time.Before(before) || v.Time.After(time.Now()) {
			t.Errorf("version %d was written at %s", i, v.Time)
		}
		var object corev1.ConfigMap
		if err := json.Unmarshal(v.Object, &object); err != nil || object.Kind != "ConfigMap" ||
			object.Name != "limits" || object.ManagedFields != nil {
			t.Errorf("version %d is %s (%v)", i, v.Object, err)
		}
	}
	at, err := history.Get(t.Context(), s.RESTConfig(),
		history.PathOf(configMapResource, "default", "limits"), history.Options{At: versions[0].Revision})
	if err != nil || len(at.Versions) != 1 || !strings.Contains(string(at.Versions[0].Object), `"1"`) {
		t.Errorf("at the first revision: %+v, %v", at, err)
	}
	_, err = history.Get(t.Context(), s.RESTConfig(),
		history.PathOf(configMapResource, "default", "limits"), history.Options{At: 1 << 40})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("at a revision that does not exist yet: %v", err)
	}
	last, err := history.Get(t.Context(), s.RESTConfig(),
		history.PathOf(configMapResource, "default", ""), history.Options{Limit: 1, Labels: "app=web"})
	if err != nil || len(last.Versions) != 1 || last.Versions[0].Event != history.Deleted || !last.More {
		t.Errorf("the last one: %+v, %v", last, err)
	}
	_, err = history.Get(t.Context(), s.RESTConfig(),
		history.PathOf(configMapResource, "default", "none"), history.Options{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("without versions: %v", err)
	}
}

// wantHidden fails t if the text has the data of the secret.
func wantHidden(t *testing.T, text string) {
	t.Helper()
	for _, hidden := range []string{"geheim", "GEHEIM"} {
		for _, form := range []string{hidden, base64.StdEncoding.EncodeToString([]byte(hidden))} {
			if strings.Contains(text, form) {
				t.Errorf("%s is shown: %s", form, text)
			}
		}
	}
	if strings.Contains(text, "managedFields") {
		t.Errorf("managed fields are shown: %s", text)
	}
}

func TestHistoryOfSecretsHidesTheirData(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	secrets := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Secrets("default")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "key", Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: `{"kind":"Secret","stringData":{"password":"geheim"}}`,
		}},
		StringData: map[string]string{"password": "geheim"},
	}
	secret, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.StringData = map[string]string{"password": "GEHEIM", "second": "geheim"}
	secret.Annotations[corev1.LastAppliedConfigAnnotation] += "geheim"
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := secrets.Delete(t.Context(), "key", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	versions := servertest.History(t, s, secretResource, "default", "key")
	if len(versions) != 3 {
		t.Fatalf("%d versions, want 3", len(versions))
	}
	text, err := json.Marshal(versions)
	if err != nil {
		t.Fatal(err)
	}
	wantHidden(t, string(text))
	for _, shown := range []string{".data.password", ".data.second", "6 bytes, not shown"} {
		if !strings.Contains(string(text), shown) {
			t.Errorf("%s is missing: %s", shown, text)
		}
	}
	namespace := "/api/v1/namespaces/default"
	for path, o := range map[string]history.Options{
		history.PathOf(secretResource, "default", ""): {}, namespace: {Contents: true},
		history.PathOf(secretResource, "default", "key"): {At: versions[1].Revision},
	} {
		h, err := history.Get(t.Context(), s.RESTConfig(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(h)
		if err != nil || !strings.Contains(string(text), "(6 bytes, not shown)") {
			t.Errorf("%s: %s, %v", path, text, err)
		}
		wantHidden(t, string(text))
	}
	// a group and a resource of these names would have the keys of secrets in the namespace default
	path := history.PathOf(schema.GroupVersionResource{
		Group: "secrets", Version: "v1", Resource: "default",
	}, "", "key")
	for _, o := range []history.Options{{}, {At: versions[0].Revision}} {
		if h, err := history.Get(t.Context(), s.RESTConfig(), path, o); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %+v, %v", path, h, err)
		}
	}
}

func TestHistoryIsForThoseWhoMayRead(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	writeHistory(t, s.RESTConfig(), "default", "limits")
	user := func(name string, verbs ...string) *rest.Config {
		return servertest.User(t, s, servertest.Account{
			Name: name, Namespace: "default",
			Rules: []rbacv1.PolicyRule{{
				Verbs: verbs, APIGroups: []string{""}, Resources: []string{"configmaps"},
				ResourceNames: []string{"limits"},
			}},
		})
	}
	getter, lister, jane := user("getter", "get"), user("lister", "list"), user("jane", "get", "list")
	reader := servertest.User(t, s, servertest.Account{
		Name: "reader", Namespace: "default",
		Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get", "list"}, APIGroups: []string{""},
			Resources: []string{"configmaps", "namespaces"},
		}},
	})
	secrets := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Secrets("default")
	if _, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "key"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	of := func(namespace, name string) string {
		return history.PathOf(configMapResource, namespace, name)
	}
	namespace := "/api/v1/namespaces/default"
	for _, test := range []struct {
		config *rest.Config
		path   string
		o      history.Options
		may    bool
	}{
		{getter, of("default", "limits"), history.Options{}, false},
		{lister, of("default", "limits"), history.Options{}, false},
		{jane, of("default", "limits"), history.Options{}, true},
		{jane, of("default", "other"), history.Options{}, false},
		{jane, of("default", ""), history.Options{}, false},
		{jane, of("kube-system", "limits"), history.Options{}, false},
		{jane, history.PathOf(secretResource, "default", "key"), history.Options{}, false},
		{jane, namespace, history.Options{Contents: true}, false},
		{reader, of("default", ""), history.Options{}, true},
		{reader, of("", ""), history.Options{}, false},
		{reader, history.PathOf(secretResource, "default", ""), history.Options{}, false},
		{reader, namespace, history.Options{Contents: true}, true},
	} {
		h, err := history.Get(t.Context(), test.config, test.path, test.o)
		if test.may && err != nil || !test.may && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", test.path, err)
		}
		if !test.may {
			err := history.Follow(t.Context(), test.config, test.path, test.o, func(history.Version) {})
			if !apierrors.IsForbidden(err) {
				t.Errorf("follow %s: %v", test.path, err)
			}
		}
		if !test.may || err != nil {
			continue
		}
		kinds := map[string]int{}
		for _, v := range h.Versions {
			kinds[v.Resource]++
		}
		if kinds["configmaps"] != 3 || kinds["secrets"] != 0 {
			t.Errorf("%s: %v", test.path, kinds)
		}
	}
	_, err := history.Get(t.Context(), getter, of("default", "limits"), history.Options{})
	if err == nil || !strings.Contains(err.Error(), `User "getter" cannot list resource "configmaps"`) {
		t.Errorf("the refusal: %v", err)
	}
	all, err := history.Get(t.Context(), s.RESTConfig(), namespace, history.Options{Contents: true})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for i, v := range all.Versions {
		kinds[v.Resource] = true
		if i > 0 && v.Revision < all.Versions[i-1].Revision {
			t.Errorf("revision %d is behind %d", v.Revision, all.Versions[i-1].Revision)
		}
	}
	if !kinds["secrets"] || !kinds["configmaps"] {
		t.Errorf("the administrator sees %v", kinds)
	}
}

func TestHistoryIsFollowed(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	writeHistory(t, s.RESTConfig(), "default", "limits")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var events []string
	if err := history.Follow(ctx, s.RESTConfig(), history.PathOf(configMapResource, "default", "limits"),
		history.Options{}, func(v history.Version) {
			events = append(events, v.Event)
			switch len(events) {
			case 3:
				writeHistory(t, s.RESTConfig(), "default", "limits")
			case 6:
				cancel()
			}
		}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(events, " "); got != strings.TrimSpace(strings.Repeat(
		"created updated deleted ", 2)) {
		t.Errorf("events: %s", got)
	}
}
