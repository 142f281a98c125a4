package apitest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestAdmissionNewResourceQuota creates and changes quotas, and at once objects that they limit. If
// nobody counts what is used, they limit nothing.
func TestAdmissionNewResourceQuota(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]func(*server.Options){
		"counted": nil, "not-counted": {servertest.WithoutControllers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s := t.Context(), servertest.Run(t, options...)
			client := kubernetes.NewForConfigOrDie(s.RESTConfig())
			counted := options == nil
			for round := range 50 {
				ns := must(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", round)},
				}, metav1.CreateOptions{}))(t).Name
				secret := func(what string, refused bool) {
					t.Helper()
					_, err := client.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{
						ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
					}, metav1.CreateOptions{})
					what = fmt.Sprintf("round %d: %s", round, what)
					checkRefused(t, what, err, refused && counted)
					if refused && counted && err != nil && !strings.Contains(err.Error(), "exceeded quota: q, ") {
						t.Errorf("%s: %v", what, err)
					}
				}
				quotas := client.CoreV1().ResourceQuotas(ns)
				hard := func(n string) {
					t.Helper()
					must(quotas.Patch(ctx, "q", types.MergePatchType,
						[]byte(`{"spec":{"hard":{"count/secrets":"`+n+`"}}}`), metav1.PatchOptions{}))(t)
				}
				must(quotas.Create(ctx, &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "q"},
					Spec:       corev1.ResourceQuotaSpec{Hard: quantities("count/secrets", "0")},
				}, metav1.CreateOptions{}))(t)
				secret("new quota", true)
				hard("1")
				secret("raised", false)
				secret("full", true)
				hard("3")
				secret("raised again", false)
				hard("2")
				secret("lowered", true)
				if err := quotas.Delete(ctx, "q", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				secret("no quota", false)
			}
		})
	}
}

// TestAdmissionResourceQuota charges quotas whose status the test sets, as the quota controller
// would.
func TestAdmissionResourceQuota(t *testing.T) {
	t.Parallel()
	_, client := quiet(t, enable(), func(o *server.Options) {
		o.Admission.DisablePlugins = []string{"ServiceAccount"}
	})
	ctx := t.Context()
	quota := func(
		name string, hard corev1.ResourceList, scopes ...corev1.ResourceQuotaScope,
	) (namespace string) {
		namespace = must(client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t).Name
		q := must(client.CoreV1().ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "q"},
			Spec:       corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes},
		}, metav1.CreateOptions{}))(t)
		q.Status.Hard, q.Status.Used = hard, corev1.ResourceList{}
		for name := range hard {
			q.Status.Used[name] = quantities("x", "0")["x"]
		}
		must(client.CoreV1().ResourceQuotas(namespace).UpdateStatus(ctx, q, metav1.UpdateOptions{}))(t)
		return namespace
	}
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(9)) }
	for name, c := range map[string]struct {
		hard   corev1.ResourceList
		scopes []corev1.ResourceQuotaScope
		// fits modifies a pod that is created first and stays within the quota. full modifies a pod
		// that exceeds it.
		fits, full []func(*corev1.Pod)
	}{
		"pods": {
			hard: quantities("pods", "1"), fits: []func(*corev1.Pod){}, full: []func(*corev1.Pod){},
		},
		"count": {
			hard: quantities("count/pods", "1"), fits: []func(*corev1.Pod){}, full: []func(*corev1.Pod){},
		},
		"cpu": {
			hard: quantities("requests.cpu", "1"),
			fits: []func(*corev1.Pod){requests("cpu", "600m")},
			full: []func(*corev1.Pod){requests("cpu", "500m")},
		},
		"not-explicit": {
			hard: quantities("limits.memory", "1Gi"),
			fits: []func(*corev1.Pod){limits("memory", "1Mi")},
			full: []func(*corev1.Pod){},
		},
		"extended": {
			hard: quantities("requests.example.com/gpu", "1"),
			fits: []func(*corev1.Pod){requests("example.com/gpu", "1"), limits("example.com/gpu", "1")},
			full: []func(*corev1.Pod){requests("example.com/gpu", "1"), limits("example.com/gpu", "1")},
		},
		"terminating": {
			hard:   quantities("pods", "0"),
			scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating},
			fits:   []func(*corev1.Pod){},
			full:   []func(*corev1.Pod){deadline},
		},
		"not-terminating": {
			hard:   quantities("pods", "0"),
			scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating},
			fits:   []func(*corev1.Pod){deadline},
			full:   []func(*corev1.Pod){},
		},
		"best-effort": {
			hard:   quantities("pods", "0"),
			scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort},
			fits:   []func(*corev1.Pod){requests("cpu", "1")},
			full:   []func(*corev1.Pod){},
		},
	} {
		ns := quota(name, c.hard, c.scopes...)
		pod := func(change []func(*corev1.Pod)) error {
			p := newPod(change...)
			p.Namespace, p.Name, p.GenerateName = ns, "", "p-"
			_, err := client.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
			return err
		}
		if c.fits != nil {
			checkRefused(t, name+", fits", pod(c.fits), false)
		}
		checkRefused(t, name, pod(c.full), true)
	}

	late := newPod()
	late.Namespace = "terminating"
	must(client.CoreV1().Pods("terminating").Create(ctx, late, metav1.CreateOptions{}))(t)
	_, err := client.CoreV1().Pods("terminating").Patch(ctx, late.Name, types.MergePatchType,
		[]byte(`{"spec":{"activeDeadlineSeconds":9}}`), metav1.PatchOptions{})
	checkRefused(t, "deadline that brings a pod under the quota", err, true)

	ns := quota("resize", quantities("requests.cpu", "2"))
	p := newPod(requests("cpu", "1"))
	p.Namespace = ns
	must(client.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{}))(t)
	resize := func(cpu string) error {
		patch := `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"` + cpu + `"}}}]}}`
		_, err := client.CoreV1().Pods(ns).Patch(ctx, "p", types.StrategicMergePatchType, []byte(patch),
			metav1.PatchOptions{}, "resize")
		return err
	}
	checkRefused(t, "resize within the quota", resize("1900m"), false)
	checkRefused(t, "resize beyond the quota", resize("2100m"), true)
}
