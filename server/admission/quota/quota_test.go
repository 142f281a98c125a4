package quota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

func evaluatorOf(t *testing.T, name string) quota.Evaluator {
	t.Helper()
	e := generic.NewRegistry(Configuration(nil).Evaluators()).Get(schema.GroupResource{Resource: name})
	if e == nil {
		t.Fatalf("no evaluator of %s", name)
	}
	return e
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	if change != nil {
		change(p)
	}
	return p
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resource string
		obj      runtime.Object
		want     corev1.ResourceList
	}{
		"pod": {"pods", pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list("cpu", "1", "memory", "1Gi", "example.com/gpu", "2")
			p.Spec.Containers[0].Resources.Limits = list("cpu", "2", "example.com/gpu", "2")
		}), list("count/pods", "1", "pods", "1", "cpu", "1", "requests.cpu", "1", "memory", "1Gi", "requests.memory", "1Gi",
			"limits.cpu", "2", "requests.example.com/gpu", "2")},
		"ended pod": {"pods", pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), list("count/pods", "1")},
		"pod past its grace": {"pods", pod(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now().Add(-time.Hour)}, new(int64(30))
		}), list("count/pods", "1")},
		"node port": {"services", &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: make([]corev1.ServicePort, 2)}},
			list("count/services", "1", "services", "1", "services.nodeports", "2", "services.loadbalancers", "0")},
		"load balancer without node ports": {"services", &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{NodePort: 30000}, {}}, AllocateLoadBalancerNodePorts: new(false)}},
			list("count/services", "1", "services", "1", "services.nodeports", "1", "services.loadbalancers", "1")},
		"claim": {"persistentvolumeclaims", &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"), Resources: corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")}}},
			list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "1Gi",
				"fast.storageclass.storage.k8s.io/requests.storage", "1Gi", "fast.storageclass.storage.k8s.io/persistentvolumeclaims", "1")},
		"secret": {"secrets", &corev1.Secret{}, list("count/secrets", "1", "secrets", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := evaluatorOf(t, c.resource)
			got, err := e.Usage(c.obj)
			if err != nil {
				t.Fatal(err)
			}
			if !quota.Equals(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if names := e.MatchingResources(quota.ResourceNames(c.want)); len(names) != len(c.want) {
				t.Errorf("of %v, a quota limits only %v", c.want, names)
			}
		})
	}
}

func TestPodScopes(t *testing.T) {
	t.Parallel()
	critical := pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "critical" })
	of := func(scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: op, Values: values}
	}
	for name, c := range map[string]struct {
		scope corev1.ScopedResourceSelectorRequirement
		pod   *corev1.Pod
		want  bool
	}{
		"best effort":          {of(corev1.ResourceQuotaScopeBestEffort, corev1.ScopeSelectorOpExists), pod(nil), true},
		"not best effort":      {of(corev1.ResourceQuotaScopeNotBestEffort, corev1.ScopeSelectorOpExists), pod(nil), false},
		"terminating":          {of(corev1.ResourceQuotaScopeTerminating, corev1.ScopeSelectorOpExists), pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }), true},
		"class in":             {of(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, "critical"), critical, true},
		"class not in":         {of(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpNotIn, "critical"), critical, false},
		"class exists":         {of(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpExists), pod(nil), false},
		"class does not exist": {of(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpDoesNotExist), pod(nil), true},
		"affinity": {of(corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ScopeSelectorOpExists), pod(func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{Namespaces: []string{"other"}}}}}
		}), true},
	} {
		in, err := evaluatorOf(t, "pods").MatchingScopes(c.pod, []corev1.ScopedResourceSelectorRequirement{c.scope})
		if err != nil || len(in) == 1 != c.want {
			t.Errorf("%s: in scope is %v (%v), want %v", name, len(in) == 1, err, c.want)
		}
	}
}

func TestLimitedPodsMustBeExplicit(t *testing.T) {
	t.Parallel()
	e := evaluatorOf(t, "pods")
	names := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceRequestsCPU, corev1.ResourceLimitsMemory}
	if err := e.Constraints(names, pod(nil)); err == nil {
		t.Error("a container without cpu request and memory limit passes")
	}
	explicit := pod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("cpu", "0"), Limits: list("memory", "1Gi")}
	})
	if err := e.Constraints(names, explicit); err != nil {
		t.Error(err)
	}
}
