package apitest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/server/servertest"
)

// readsTeam are the rules of somebody who may read what the tests put into the namespace team.
var readsTeam = []rbacv1.PolicyRule{
	{
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""},
		Resources: []string{"configmaps", "namespaces"},
	},
	{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"g0.example.com"},
		Resources: []string{"widgets"}},
}

// makeTeam creates the namespace team with a config map and a custom resource whose labels tell
// whose they are.
func makeTeam(t *testing.T, c clients, owner string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"owner": owner}},
	}, metav1.CreateOptions{})
	ok(t, err)
	m := named("limits")
	m.Labels = map[string]string{"owner": owner}
	// Admission may still see the namespace of that name that is gone.
	eventually(t, "the namespace takes objects", func() error {
		_, err := c.CoreV1().ConfigMaps("team").Create(t.Context(), m, metav1.CreateOptions{})
		return err
	})
	w := widget("g0.example.com", "gear")
	w.SetNamespace("team")
	w.SetLabels(map[string]string{"owner": owner})
	_, err = c.dynamic.Resource(widgetResource).Namespace("team").Create(t.Context(), w,
		metav1.CreateOptions{})
	ok(t, err)
}

var widgetResource = schema.GroupVersionResource{
	Group: "g0.example.com", Version: "v1", Resource: "widgets",
}

func removeTeam(t *testing.T, c clients) {
	t.Helper()
	ok(t, c.CoreV1().Namespaces().Delete(t.Context(), "team", metav1.DeleteOptions{}))
	await(t, "the namespace is gone", func() bool {
		_, err := c.CoreV1().Namespaces().Get(t.Context(), "team", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// teamPaths are the paths of histories in the namespace team.
func teamPaths() map[string]history.Options {
	return map[string]history.Options{
		history.PathOf(configMapResource, "team", "limits"): {},
		history.PathOf(configMapResource, "team", ""):       {},
		history.PathOf(widgetResource, "team", "gear"):      {},
		history.PathOf(widgetResource, "team", ""):          {},
		"/api/v1/namespaces/team":                           {},
		"/api/v1/namespaces/team?contents":                  {Contents: true},
	}
}

// wantOwners fails t unless the history tells of the owner, and of the other one as is wanted.
func wantOwners(t *testing.T, config *rest.Config, path string, o history.Options, owner,
	other string, both bool) {
	t.Helper()
	plain, _, _ := strings.Cut(path, "?")
	h, err := history.Get(t.Context(), config, plain, o)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	hasOwner, hasOther := false, false
	for _, v := range h.Versions {
		text := string(v.Object)
		for _, c := range v.Changes {
			text += string(c.Before) + string(c.After)
		}
		hasOwner = hasOwner || strings.Contains(text, owner)
		hasOther = hasOther || strings.Contains(text, other)
	}
	if !hasOwner || hasOther != both {
		t.Errorf("%s: the history tells of %s: %t, and of %s: %t: %+v", path, owner, hasOwner, other,
			hasOther, h.Versions)
	}
}

// Whoever gets the name of a namespace that somebody else had sees nothing of what that one had.
// Those who may read all namespaces see everything.
func TestAttackHistoryOfTheNamespaceBefore(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	define(t, s, 1)
	c := clientsOf(t, s)
	makeTeam(t, c, "alice")
	servertest.User(t, s, servertest.Account{Name: "alice", Namespace: "team", Rules: readsTeam})
	old := servertest.History(t, s, configMapResource, "team", "limits")[0].Revision
	removeTeam(t, c)
	makeTeam(t, c, "robert")
	ok(t, c.CoreV1().ConfigMaps("team").Delete(t.Context(), "limits", metav1.DeleteOptions{}))
	robert := servertest.User(t, s, servertest.Account{
		Name: "robert", Namespace: "team", Rules: readsTeam,
	})
	auditor := servertest.User(t, s, servertest.Account{Name: "auditor", Rules: readsTeam})
	for path, o := range teamPaths() {
		wantOwners(t, robert, path, o, "robert", "alice", false)
		o.Labels = "owner=alice"
		plain, _, _ := strings.Cut(path, "?")
		if h, err := history.Get(t.Context(), robert, plain, o); err == nil && len(h.Versions) > 0 {
			t.Errorf("%s of alice: %+v", path, h.Versions)
		}
		o.Labels = ""
		wantOwners(t, auditor, path, o, "robert", "alice", true)
		wantOwners(t, s.RESTConfig(), path, o, "robert", "alice", true)
	}
	limits := history.PathOf(configMapResource, "team", "limits")
	_, err := history.Get(t.Context(), robert, limits, history.Options{At: old})
	if !apierrors.IsNotFound(err) {
		t.Errorf("at a revision of alice: %v", err)
	}
	_, err = history.Get(t.Context(), auditor, limits, history.Options{At: old})
	ok(t, err)

	// Where a history is followed, it ends with the namespace.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	removed := false
	var seen []history.Version
	ok(t, history.Follow(ctx, robert, history.PathOf(configMapResource, "team", ""), history.Options{},
		func(v history.Version) {
			seen = append(seen, v)
			if !removed {
				removed = true
				removeTeam(t, c)
				makeTeam(t, c, "carol")
			}
		}))
	if ctx.Err() != nil {
		t.Error("the history that is followed goes on in the next namespace")
	}
	for _, v := range seen {
		if text := string(v.Object); strings.Contains(text, "alice") || strings.Contains(text, "carol") {
			t.Errorf("followed: %+v", v)
		}
	}
}

// A reset puts one namespace in the place of another in one step.
func TestAttackHistoryOfTheNamespaceBeforeReset(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	define(t, s, 1)
	c := clientsOf(t, s)
	makeTeam(t, c, "alice")
	alice := servertest.User(t, s, servertest.Account{
		Name: "alice", Namespace: "team", Rules: readsTeam,
	})
	snapshot := takeSnapshot(t, s)
	removeTeam(t, c)
	makeTeam(t, c, "robert")
	resetTo(t, s, snapshot)
	for path, o := range teamPaths() {
		wantOwners(t, alice, path, o, "alice", "robert", false)
		wantOwners(t, s.RESTConfig(), path, o, "alice", "robert", true)
	}
}
