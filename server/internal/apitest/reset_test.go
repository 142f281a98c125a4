package apitest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

func resetTo(t *testing.T, s *server.Server, snapshot *server.Snapshot) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Reset(ctx, snapshot); err != nil {
		t.Fatal(err)
	}
}

var modes = map[string]func(t *testing.T) func(*server.Options){
	"ephemeral": func(*testing.T) func(*server.Options) { return func(*server.Options) {} },
	"kept": func(t *testing.T) func(*server.Options) {
		return func(o *server.Options) { o.DataDir = t.TempDir() }
	},
}

func revisionOf(t *testing.T, version string) int {
	t.Helper()
	n, err := strconv.Atoi(version)
	ok(t, err)
	return n
}

// Objects are as in the snapshot after a reset, whether they were created, changed or deleted
// since. Those that did not change keep their resource version, the others have a newer one.
func TestResetRestoresObjects(t *testing.T) {
	t.Parallel()
	for mode, option := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := servertest.Run(t, option(t))
			c := clientsOf(t, s)
			maps := c.CoreV1().ConfigMaps("default")
			before := map[string]*corev1.ConfigMap{}
			awaitRootCertificates(t, c)
			for _, name := range []string{"same", "changed", "deleted", "recreated"} {
				m, err := maps.Create(t.Context(), named(name), metav1.CreateOptions{})
				ok(t, err)
				before[name] = m
			}
			snapshot := takeSnapshot(t, s)
			changed := before["changed"].DeepCopy()
			changed.Data["color"] = "red"
			_, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{})
			ok(t, err)
			ok(t, maps.Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
			ok(t, maps.Delete(t.Context(), "recreated", metav1.DeleteOptions{}))
			_, err = maps.Create(t.Context(), named("recreated"), metav1.CreateOptions{})
			ok(t, err)
			last, err := maps.Create(t.Context(), named("new"), metav1.CreateOptions{})
			ok(t, err)

			resetTo(t, s, snapshot)
			for _, version := range []string{"", "0"} {
				list, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: version})
				ok(t, err)
				if revisionOf(t, list.ResourceVersion) <= revisionOf(t, last.ResourceVersion) {
					t.Errorf("the list is at %s, not after %s", list.ResourceVersion, last.ResourceVersion)
				}
				for _, m := range list.Items {
					was := before[m.Name]
					if m.Name == "kube-root-ca.crt" {
						continue
					}
					if was == nil {
						t.Errorf("%s is still there at version %q", m.Name, version)
						continue
					}
					if m.UID != was.UID || m.Data["color"] != "green" {
						t.Errorf("%s is %v, was %v", m.Name, m, was)
					}
					if same := m.ResourceVersion == was.ResourceVersion; same != (m.Name == "same") {
						t.Errorf("%s has resource version %s, had %s", m.Name, m.ResourceVersion,
							was.ResourceVersion)
					}
					if m.Name != "same" &&
						revisionOf(t, m.ResourceVersion) <= revisionOf(t, last.ResourceVersion) {
						t.Errorf("%s went back to %s", m.Name, m.ResourceVersion)
					}
				}
				if len(list.Items) != 5 {
					t.Errorf("%d config maps, want 5", len(list.Items))
				}
			}
			checkOwnObjects(t, s, c)
			resetTo(t, s, snapshot) // nothing differs
			// A fork of another control plane's snapshot has other keys, which must not come here.
			other := servertest.Run(t)
			awaitRootCertificates(t, clientsOf(t, other))
			resetTo(t, s, takeSnapshot(t, other))
			checkOwnObjects(t, s, c)
		})
	}
}

// The first request after a reset sees only the new state, in whatever cache it looks.
func TestResetReachesAllCaches(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := clientsOf(t, s)
	jane, err := s.InProcessConfig("jane")
	ok(t, err)
	asJane := kubernetes.NewForConfigOrDie(jane)
	define(t, s, 1)
	const group = "g0.example.com"
	_, err = c.widgets(group).Create(t.Context(), widget(group, "kept"), metav1.CreateOptions{})
	ok(t, err)
	mayRead := func() bool {
		_, err := asJane.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		return err == nil
	}
	if mayRead() {
		t.Fatal("jane may list secrets from the start")
	}
	nodePort := func(name string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.77",
				Ports: []corev1.ServicePort{{Port: 80, NodePort: 30077}}},
		}
	}
	snapshot := takeSnapshot(t, s)

	for round := range 5 {
		dirty(t, c, group, nodePort("taker"))
		// The authorizer learns of the roles by a watch.
		ok(t, wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) { return mayRead(), nil }))
		resetTo(t, s, snapshot)

		if mayRead() {
			t.Errorf("round %d: jane may still list secrets", round)
		}
		// The CRD is as before, and so are its handler and its discovery.
		_, err := c.widgets(group).Create(t.Context(), widget(group, "unchecked"), metav1.CreateOptions{
			DryRun: []string{"All"}})
		if err != nil {
			t.Errorf("round %d: the changed CRD is still served: %v", round, err)
		}
		list, err := c.Discovery().ServerResourcesForGroupVersion(group + "/v1")
		ok(t, err)
		if len(list.APIResources) != 1 || len(list.APIResources[0].ShortNames) != 0 {
			t.Errorf("round %d: discovery lists %v", round, list.APIResources)
		}
		if _, err := c.widgets(group).Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		const other = "other.example.com"
		if _, err := c.widgets(other).List(t.Context(),
			metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("round %d: the CRD that was created is still served: %v", round, err)
		}
		if _, err := c.Discovery().ServerResourcesForGroupVersion(other + "/v1"); !apierrors.IsNotFound(
			err) {
			t.Errorf("round %d: and discovered: %v", round, err)
		}
		groups, resources, err := c.Discovery().ServerGroupsAndResources()
		ok(t, err)
		for _, g := range groups {
			if g.Name == other {
				t.Errorf("round %d: the groups still have %s", round, other)
			}
		}
		for _, r := range resources {
			if r.GroupVersion == other+"/v1" {
				t.Errorf("round %d: the resources still have %s", round, other)
			}
		}
		// Neither the policy, nor the webhook, nor the quota refuses a config map.
		m, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), named("admitted"),
			metav1.CreateOptions{})
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		} else {
			ok(t, c.CoreV1().ConfigMaps("default").Delete(t.Context(), m.Name, metav1.DeleteOptions{}))
		}
		if _, err := c.CoreV1().ConfigMaps("extra").Create(t.Context(), named("homeless"),
			metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("round %d: in a namespace that is gone: %v", round, err)
		}
		service, err := c.CoreV1().Services("default").Create(t.Context(), nodePort("again"),
			metav1.CreateOptions{})
		if err != nil {
			t.Errorf("round %d: the address and the port are not free: %v", round, err)
		} else {
			ok(t, c.CoreV1().Services("default").Delete(t.Context(), service.Name, metav1.DeleteOptions{}))
		}
	}
}

// dirty changes what a control plane keeps in caches.
func dirty(t *testing.T, c clients, group string, service *corev1.Service) {
	t.Helper()
	ctx := t.Context()
	_, err := c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "secret-reader"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""},
			Resources: []string{"secrets"}}},
	}, metav1.CreateOptions{})
	ok(t, err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"},
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName,
			Kind:     "ClusterRole",
			Name:     "secret-reader",
		},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "jane"}},
	}, metav1.CreateOptions{})
	ok(t, err)
	_, err = c.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
	ok(t, err)
	_, err = c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "extra"},
	}, metav1.CreateOptions{})
	ok(t, err)
	_, err = c.CoreV1().ConfigMaps("extra").Create(ctx, named("inside"), metav1.CreateOptions{})
	ok(t, err)
	// Another CRD, and the existing one with a field that is required.
	servertest.CRDs(t, c.api, servertest.Objects(widgets("other.example.com")))
	_, err = c.widgets("other.example.com").Create(ctx, widget("other.example.com", "one"),
		metav1.CreateOptions{})
	ok(t, err)
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	patch :=
		`[{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/required", "value": ["spec"]},
		{"op": "add", "path": "/spec/names/shortNames", "value": ["wd"]}]`
	_, err = definitions.Patch(ctx, "widgets."+group, types.JSONPatchType, []byte(patch),
		metav1.PatchOptions{})
	ok(t, err)
	await(t, "the changed CRD is served", func() bool {
		_, err := c.widgets(group).Create(ctx, widget(group, "unchecked"), metav1.CreateOptions{
			DryRun: []string{"All"}})
		return apierrors.IsInvalid(err)
	})
	forbid(t, c)
}

// forbid makes admission refuse config maps: by a quota, by a policy and by a webhook, one after
// the other, so that each one is known to work.
func forbid(t *testing.T, c clients) {
	t.Helper()
	ctx := t.Context()
	refused := func(by string) {
		await(t, by+" refuses", func() bool {
			_, err := c.CoreV1().ConfigMaps("default").Create(ctx, named("refused"), metav1.CreateOptions{
				DryRun: []string{"All"}})
			return err != nil
		})
	}
	_, err := c.CoreV1().ResourceQuotas("default").Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/configmaps": resource.MustParse("0"),
		}},
	}, metav1.CreateOptions{})
	ok(t, err)
	refused("the quota")
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
			Resources: []string{"configmaps"}},
	}
	_, err = c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "never"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
						{RuleWithOperations: rule},
					},
				},
				Validations: []admissionregistrationv1.Validation{{Expression: "false"}},
			},
		}, metav1.CreateOptions{})
	ok(t, err)
	_, err = c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "never"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "never",
				ValidationActions: []admissionregistrationv1.ValidationAction{"Deny"}},
		}, metav1.CreateOptions{})
	ok(t, err)
	nobody, none := "https://127.0.0.1:1/", admissionregistrationv1.SideEffectClassNone
	_, err = c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "down"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "down.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &nobody},
				Rules:        []admissionregistrationv1.RuleWithOperations{rule},
			}},
		}, metav1.CreateOptions{})
	ok(t, err)
}

// A watch across a reset gets the difference as ordinary events, and so do informers.
func TestWatchesAcrossAReset(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	c := clientsOf(t, s)
	define(t, s, 1)
	const group = "g0.example.com"
	const objects = 50
	maps := c.CoreV1().ConfigMaps("default")
	for i := range objects {
		_, err := maps.Create(t.Context(), named(fmt.Sprintf("map-%d", i)), metav1.CreateOptions{})
		ok(t, err)
	}
	_, err := c.widgets(group).Create(t.Context(), widget(group, "kept"), metav1.CreateOptions{})
	ok(t, err)
	snapshot := takeSnapshot(t, s)

	factory := informers.NewSharedInformerFactory(c, 0)
	lister := factory.Core().V1().ConfigMaps().Lister()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	ok(t, err)
	raw, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	ok(t, err)
	defer raw.Stop()
	custom, err := c.widgets(group).Watch(t.Context(), metav1.ListOptions{})
	ok(t, err)
	defer custom.Stop()
	if e := <-custom.ResultChan(); e.Type != watch.Added {
		t.Fatalf("the watch of widgets began with %v", e)
	}

	for i := range objects {
		name := fmt.Sprintf("map-%d", i)
		switch i % 3 {
		case 0:
			ok(t, maps.Delete(t.Context(), name, metav1.DeleteOptions{}))
		case 1:
			_, err := maps.Patch(t.Context(), name, types.MergePatchType,
				[]byte(`{"data": {"color": "red"}}`), metav1.PatchOptions{})
			ok(t, err)
		}
		_, err := maps.Create(t.Context(), named(fmt.Sprintf("new-%d", i)), metav1.CreateOptions{})
		ok(t, err)
	}
	ok(t, c.widgets(group).Delete(t.Context(), "kept", metav1.DeleteOptions{}))
	resetTo(t, s, snapshot)
	end, err := maps.Create(t.Context(), named("end"), metav1.CreateOptions{})
	ok(t, err)

	state := map[string]string{}
	for _, m := range list.Items {
		state[m.Name] = m.Data["color"]
	}
	whole := applyEvents(t, raw, state, revisionOf(t, end.ResourceVersion))
	for name, color := range state {
		if whole && (color != "green" || len(state) != objects+1) {
			t.Errorf("%s is %s, and the watch shows %d objects, want %d", name, color, len(state), objects+1)
		}
	}
	await(t, "the informer is right", func() bool {
		all, err := lister.List(labels.Everything())
		ok(t, err)
		for _, m := range all {
			if m.Namespace == "default" && m.Data["color"] != "green" && m.Name != "kube-root-ca.crt" {
				return false
			}
		}
		inDefault, err := lister.ConfigMaps("default").List(labels.Everything())
		ok(t, err)
		return len(inDefault) == objects+1
	})
	var got []watch.EventType
	for len(got) < 2 {
		got = append(got, (<-custom.ResultChan()).Type)
	}
	if got[0] != watch.Deleted || got[1] != watch.Added {
		t.Errorf("the watch of widgets got %v", got)
	}

	// A client that saw only some of the events of the reset would miss the others. The server also
	// closes the watch of a client that is too slow for all of them, which then comes with this
	// version.
	restored, err := maps.Get(t.Context(), "map-0", metav1.GetOptions{})
	ok(t, err)
	several := restored.ResourceVersion
	err = beginAt(t, maps, several)
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch that begins within the reset, at %s: %v", several, err)
	}
	// Whoever lists now can watch from there.
	list, err = maps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	ok(t, err)
	later, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	ok(t, err)
	defer later.Stop()
	_, err = maps.Create(t.Context(), named("later"), metav1.CreateOptions{})
	ok(t, err)
	e := <-later.ResultChan()
	if m, isMap := e.Object.(*corev1.ConfigMap); !isMap || m.Name != "later" {
		t.Errorf("a watch that begins after the reset got %v", e)
	}
}

// beginAt begins a watch and returns how it is refused, or nil if it gets an event.
func beginAt(t *testing.T, maps typedcorev1.ConfigMapInterface, version string) error {
	t.Helper()
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	return nil
}

// applyEvents applies the events of a watch to a state until one has the last revision. It reports
// whether the watch got all events.
func applyEvents(t *testing.T, w watch.Interface, state map[string]string, end int) bool {
	t.Helper()
	last := 0
	for e := range w.ResultChan() {
		m, isMap := e.Object.(*corev1.ConfigMap)
		if !isMap {
			t.Fatalf("the watch got %v", e)
		}
		revision := revisionOf(t, m.ResourceVersion)
		if revision < last {
			t.Errorf("revision %d after %d", revision, last)
		}
		last = revision
		_, had := state[m.Name]
		switch e.Type {
		case watch.Added, watch.Modified:
			if had != (e.Type == watch.Modified) {
				t.Errorf("%s of %s, which existed: %t", e.Type, m.Name, had)
			}
			state[m.Name] = m.Data["color"]
		case watch.Deleted:
			if !had {
				t.Errorf("deletion of %s, which did not exist", m.Name)
			}
			delete(state, m.Name)
		}
		if revision >= end {
			return true
		}
	}
	return false
}

// A reset of a control plane that changes all the time is one step for whoever looks: config maps
// that are always written in pairs stay pairs, and no write that was acknowledged before the reset
// outlasts it.
func TestRequestsThatRaceAReset(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := clientsOf(t, s)
	maps := c.CoreV1().ConfigMaps("default")
	_, err := maps.Create(t.Context(), named("counter"), metav1.CreateOptions{})
	ok(t, err)
	snapshot := takeSnapshot(t, s)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	var resets atomic.Int64 // odd while a reset runs
	for n := range 8 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("writer-%d-%d", n, i)
				before := resets.Load()
				_, err := maps.Create(ctx, named(name), metav1.CreateOptions{})
				if apierrors.IsConflict(err) && strings.Contains(err.Error(), "was reset") {
					continue // the reset did not wait for the body, which took long to be read
				}
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("create: %v", err)
					}
					return
				}
				_, err = maps.Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) && before%2 == 0 && resets.Load() == before {
					t.Errorf("%s vanished without a reset", name)
				}
			}
		})
	}
	for range 20 {
		acknowledged, err := maps.List(t.Context(), metav1.ListOptions{})
		ok(t, err)
		resets.Add(1)
		resetTo(t, s, snapshot)
		after, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		ok(t, err)
		resets.Add(1)
		left := map[string]bool{}
		for _, m := range after.Items {
			left[m.Name] = true
		}
		for _, m := range acknowledged.Items {
			if strings.HasPrefix(m.Name, "writer-") && left[m.Name] {
				t.Errorf("%s outlasted the reset", m.Name)
			}
		}
	}
	stop()
	writers.Wait()
}

// What a control loop was about to do to the old objects is not done to those of the snapshot.
func TestControlLoopsForgetBeforeAReset(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	c := clientsOf(t, s)
	define(t, s, 1)
	const group, objects = "g0.example.com", 200
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "doomed"},
	}, metav1.CreateOptions{})
	ok(t, err)
	for i := range objects {
		_, err := c.CoreV1().ConfigMaps("doomed").Create(t.Context(), named(fmt.Sprint("map-", i)),
			metav1.CreateOptions{})
		ok(t, err)
		_, err = c.widgets(group).Create(t.Context(), widget(group, fmt.Sprint("widget-", i)),
			metav1.CreateOptions{})
		ok(t, err)
	}
	awaitRootCertificates(t, c)
	snapshot := takeSnapshot(t, s)
	for range 5 {
		ok(t, c.CoreV1().Namespaces().Delete(t.Context(), "doomed", metav1.DeleteOptions{}))
		ok(t, c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "widgets."+group,
			metav1.DeleteOptions{}))
		await(t, "the content is being deleted", func() bool {
			left, err := c.CoreV1().ConfigMaps("doomed").List(t.Context(), metav1.ListOptions{})
			return err == nil && len(left.Items) < objects
		})
		resetTo(t, s, snapshot)
		// Give the loops the opportunity to do wrong: until they have done something new.
		_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "next"},
		}, metav1.CreateOptions{})
		ok(t, err)
		await(t, "the loops have worked", func() bool {
			_, err := c.CoreV1().ServiceAccounts("next").Get(t.Context(), "default", metav1.GetOptions{})
			return err == nil
		})
		kept, err := c.CoreV1().ConfigMaps("doomed").List(t.Context(), metav1.ListOptions{})
		ok(t, err)
		if len(kept.Items) != objects+1 { // and kube-root-ca.crt
			t.Fatalf("%d config maps are left of %d", len(kept.Items), objects+1)
		}
		ns, err := c.CoreV1().Namespaces().Get(t.Context(), "doomed", metav1.GetOptions{})
		ok(t, err)
		if ns.Status.Phase != corev1.NamespaceActive {
			t.Fatalf("the namespace is %s", ns.Status.Phase)
		}
		left, err := c.widgets(group).List(t.Context(), metav1.ListOptions{})
		ok(t, err)
		if len(left.Items) != objects {
			t.Fatalf("%d widgets are left of %d", len(left.Items), objects)
		}
	}
}
