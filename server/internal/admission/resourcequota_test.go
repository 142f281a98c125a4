package admission_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kinproc/kinproc/server"
)

// TestResourceQuota charges quotas whose status the test sets, as the quota controller would.
func TestResourceQuota(t *testing.T) {
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
		// fits modifies a pod that is created first and stays within the quota. full modifies a pod that
		// exceeds it.
		fits, full []func(*corev1.Pod)
	}{
		"pods":  {hard: quantities("pods", "1"), full: []func(*corev1.Pod){}},
		"count": {hard: quantities("count/pods", "1"), full: []func(*corev1.Pod){}},
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
		// The plugin watches quotas, so the first pods may be admitted before it has seen the quota.
		if c.fits != nil {
			checkRefused(t, name+", fits", pod(c.fits), false)
		}
		eventually(t, name, func() error {
			if err := pod(c.full); !apierrors.IsForbidden(err) {
				return errors.Join(errors.New("was not refused"), err)
			}
			return nil
		})
	}

	late := newPod()
	late.Namespace = "terminating"
	must(client.CoreV1().Pods("terminating").Create(ctx, late, metav1.CreateOptions{}))(t)
	_, err := client.CoreV1().Pods("terminating").Patch(ctx, late.Name, types.MergePatchType,
		[]byte(`{"spec":{"activeDeadlineSeconds":9}}`), metav1.PatchOptions{})
	checkRefused(t, "deadline that brings a pod under the quota", err, true)

	ns := quota("resize", quantities("requests.cpu", "2", "count/configmaps", "0"))
	eventually(t, "the plugin knows the quota", func() error {
		_, err := client.CoreV1().ConfigMaps(ns).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("was not refused"), err)
		}
		return nil
	})
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
