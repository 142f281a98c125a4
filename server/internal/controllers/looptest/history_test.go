package looptest

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kinproc/kinproc/server/internal/controllers/apps/podtemplates"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestHistory keeps the revisions of a set as its template changes, without a loop.
func TestHistory(t *testing.T) {
	t.Parallel()
	_, client := workloadtest.Alone(t)
	ctx := t.Context()
	app := map[string]string{"app": "web"}
	set := workloadtest.Must(client.AppsV1().StatefulSets(workloadtest.Namespace).Create(ctx,
		&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: app}, Template: workloadtest.Template(app),
			},
		}, metav1.CreateOptions{}))(t)
	owner := ownerrefs.Owner{
		Object: set, Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		Selector: labels.SelectorFromSet(app),
	}
	d, _ := workloadtest.Dependencies(client)
	var control *podtemplates.Control
	workloadtest.Must(loop.Loop{Begin: func(c *loop.Controller) loop.Work {
		control = podtemplates.New(c)
		return loop.Work{Watches: []loop.Watch{control.Watch()}}
	}}.New(d))(t)
	var all []*appsv1.ControllerRevision
	collisions := new(int32(0))
	latest := func(image string, names podtemplates.Names) *appsv1.ControllerRevision {
		t.Helper()
		template := workloadtest.Template(app)
		template.Spec.Containers[0].Image = image
		state := workloadtest.Must(control.Latest(ctx, owner, all, &template, names, collisions))(t)
		all, collisions = state.All, state.Collisions
		if all[len(all)-1] != state.Latest {
			t.Errorf("with %s, the latest revision is not the last one", image)
		}
		return state.Latest
	}
	is := func(what string, revisions ...int64) {
		t.Helper()
		var got []int64
		for _, r := range all {
			got = append(got, r.Revision)
		}
		list := workloadtest.Must(client.AppsV1().ControllerRevisions(workloadtest.Namespace).List(ctx,
			metav1.ListOptions{}))(t)
		if !slices.Equal(got, revisions) || len(list.Items) != len(revisions) {
			t.Errorf("%s: the revisions are %v, and %d are stored; want %v", what, got,
				len(list.Items), revisions)
		}
	}
	first := latest("i:1", podtemplates.ByData)
	is("a first template", 1)
	if again := latest("i:1", podtemplates.ByData); again.UID != first.UID {
		t.Errorf("the same template has another revision, %s", again.Name)
	}
	second := latest("i:2", podtemplates.ByData)
	is("another template", 1, 2)
	if back := latest("i:1", podtemplates.ByData); back.UID != first.UID || back.Revision != 3 {
		t.Errorf("the first template again: %s with revision %d", back.Name, back.Revision)
	}
	is("the first template again", 2, 3)

	// Two templates with the same hash.
	taken := func(_ []byte, collisions *int32) (string, map[string]string) {
		if *collisions == 0 {
			return second.Name[len("web-"):], nil
		}
		return "other", nil
	}
	if third := latest("i:3", taken); third.Name != "web-other" || *collisions != 1 {
		t.Errorf("a revision whose name is taken is %s after %d collisions", third.Name, *collisions)
	}
	is("a third template", 2, 3, 4)

	workloadtest.OK(t, control.Limit(ctx, all, new(int32(1)), func(r *appsv1.ControllerRevision) bool {
		return r.Name == "web-other"
	}))
	left := workloadtest.Must(client.AppsV1().ControllerRevisions(workloadtest.Namespace).List(ctx,
		metav1.ListOptions{}))(t)
	if len(left.Items) != 2 || slices.ContainsFunc(left.Items, func(r appsv1.ControllerRevision) bool {
		return r.UID == second.UID
	}) {
		t.Errorf("%d revisions are left, want the one in use and the newest other one", len(left.Items))
	}
}

// TestHash has templates that differ, and collisions.
func TestHash(t *testing.T) {
	t.Parallel()
	template := func(image string) *corev1.PodTemplateSpec {
		return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: image}},
		}}
	}
	hash := podtemplates.Hash(template("a"), nil)
	if again := podtemplates.Hash(template("a"), nil); again != hash {
		t.Errorf("the same template has the hashes %s and %s", hash, again)
	}
	seen := map[string]bool{}
	for _, hash := range []string{
		hash, podtemplates.Hash(template("b"), nil),
		podtemplates.Hash(template("a"), new(int32(0))), podtemplates.Hash(template("a"), new(int32(1))),
	} {
		if seen[hash] {
			t.Errorf("hash %s twice", hash)
		}
		seen[hash] = true
	}
}
