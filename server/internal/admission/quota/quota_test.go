package quota

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"
)

func evaluatorOf(t *testing.T, name string) quota.Evaluator {
	t.Helper()
	e := generic.NewRegistry(Configuration(nil).Evaluators()).Get(schema.ParseGroupResource(name))
	if e == nil {
		t.Fatalf("no evaluator for %s", name)
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

func devices(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}
}

func exactly(
	class string, mode resourcev1.DeviceAllocationMode, count int64,
) *resourcev1.ExactDeviceRequest {
	return &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: count}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resource string
		obj      runtime.Object
		want     corev1.ResourceList
	}{
		"pod": {"pods", pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list("cpu", "1", "memory", "1Gi",
				"example.com/gpu", "2")
			p.Spec.Containers[0].Resources.Limits = list("cpu", "2", "example.com/gpu", "2")
		}),
			list("count/pods", "1", "pods", "1", "cpu", "1", "requests.cpu", "1", "memory", "1Gi",
				"requests.memory", "1Gi", "limits.cpu", "2", "requests.example.com/gpu", "2")},
		"ended pod": {"pods", pod(func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
		}), list("count/pods", "1")},
		"pod past its grace": {"pods", pod(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{
				Time: time.Now().Add(-time.Hour),
			}, new(int64(30))
		}), list("count/pods", "1")},
		"node port": {"services", &corev1.Service{
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: make([]corev1.ServicePort, 2)},
		},
			list("count/services", "1", "services", "1", "services.nodeports", "2",
				"services.loadbalancers", "0")},
		"load balancer without node ports": {"services", &corev1.Service{Spec: corev1.ServiceSpec{
			Type:                          corev1.ServiceTypeLoadBalancer,
			Ports:                         []corev1.ServicePort{{NodePort: 30000}, {}},
			AllocateLoadBalancerNodePorts: new(false)}},
			list("count/services", "1", "services", "1", "services.nodeports", "1",
				"services.loadbalancers", "1")},
		"claim": {
			"persistentvolumeclaims", &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: new("fast"),
				Resources:        corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")}}},
			list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1",
				"requests.storage", "1Gi", "fast.storageclass.storage.k8s.io/requests.storage", "1Gi",
				"fast.storageclass.storage.k8s.io/persistentvolumeclaims", "1"),
		},
		"growing claim": {"persistentvolumeclaims", &corev1.PersistentVolumeClaim{
			Spec: corev1.PersistentVolumeClaimSpec{
				Resources: corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")},
			},
			Status: corev1.PersistentVolumeClaimStatus{AllocatedResources: list("storage", "2Gi")}},
			list("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1",
				"requests.storage", "2Gi")},
		"huge pages": {"pods", pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list("hugepages-2Mi", "4Mi")
		}),
			list("count/pods", "1", "pods", "1", "hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi")},
		"pod level": {"pods", pod(func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "3")}
			p.Spec.Containers[0].Resources.Requests = list("cpu", "1")
		}), list("count/pods", "1", "pods", "1", "cpu", "3", "requests.cpu", "3")},
		"being resized": {"pods", pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list("cpu", "1")
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name:               "c",
				AllocatedResources: list("cpu", "2"),
				Resources:          &corev1.ResourceRequirements{Requests: list("cpu", "2")},
			}}
		}), list("count/pods", "1", "pods", "1", "cpu", "2", "requests.cpu", "2")},
		"devices": {"resourceclaims.resource.k8s.io", devices(
			resourcev1.DeviceRequest{
				Name:    "a",
				Exactly: exactly("gpu", resourcev1.DeviceAllocationModeExactCount, 2),
			},
			resourcev1.DeviceRequest{
				Name:    "b",
				Exactly: exactly("gpu", resourcev1.DeviceAllocationModeExactCount, 1),
			},
			resourcev1.DeviceRequest{Name: "c", Exactly: exactly("nic", "FromTheFuture", 1)},
		),
			list("count/resourceclaims.resource.k8s.io", "1", "gpu.deviceclass.resource.k8s.io/devices", "3",
				"requests.deviceclass.resource.kubernetes.io/gpu", "3",
				"nic.deviceclass.resource.k8s.io/devices", "0",
				"requests.deviceclass.resource.kubernetes.io/nic", "0")},
		"devices of choice": {
			"resourceclaims.resource.k8s.io",
			devices(resourcev1.DeviceRequest{Name: "a", FirstAvailable: []resourcev1.DeviceSubRequest{
				{
					Name:            "x",
					DeviceClassName: "gpu",
					AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
					Count:           2,
				},
				{
					Name:            "y",
					DeviceClassName: "gpu",
					AllocationMode:  resourcev1.DeviceAllocationModeExactCount,
					Count:           1,
				},
				{Name: "z", DeviceClassName: "nic", AllocationMode: resourcev1.DeviceAllocationModeAll},
			}}),
			list("count/resourceclaims.resource.k8s.io", "1", "gpu.deviceclass.resource.k8s.io/devices", "2",
				"requests.deviceclass.resource.kubernetes.io/gpu", "2",
				"nic.deviceclass.resource.k8s.io/devices", "32",
				"requests.deviceclass.resource.kubernetes.io/nic", "32"),
		},
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
				t.Errorf("of the resources %v, a quota limits only %v", c.want, names)
			}
		})
	}
}

func TestPodScopes(t *testing.T) {
	t.Parallel()
	critical := pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "critical" })
	of := func(
		scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values ...string,
	) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: op, Values: values}
	}
	for name, c := range map[string]struct {
		scope corev1.ScopedResourceSelectorRequirement
		pod   *corev1.Pod
		want  bool
	}{
		"best effort": {
			of(corev1.ResourceQuotaScopeBestEffort, corev1.ScopeSelectorOpExists), pod(nil), true,
		},
		"not best effort": {
			of(corev1.ResourceQuotaScopeNotBestEffort, corev1.ScopeSelectorOpExists), pod(nil), false,
		},
		"pod level": {
			of(corev1.ResourceQuotaScopeBestEffort, corev1.ScopeSelectorOpExists),
			pod(func(p *corev1.Pod) {
				p.Spec.Resources = &corev1.ResourceRequirements{Limits: list("cpu", "1")}
			}), false,
		},
		"terminating": {
			of(corev1.ResourceQuotaScopeTerminating, corev1.ScopeSelectorOpExists),
			pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }), true,
		},
		"class in": {
			of(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, "critical"), critical, true,
		},
		"class not in": {
			of(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpNotIn, "critical"), critical,
			false,
		},
		"class exists": {
			of(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpExists), pod(nil), false,
		},
		"class does not exist": {
			of(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpDoesNotExist), pod(nil), true,
		},
		"affinity": {
			of(corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ScopeSelectorOpExists),
			pod(func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
						{Namespaces: []string{"other"}},
					}}}
			}), true,
		},
	} {
		in, err := evaluatorOf(t, "pods").MatchingScopes(c.pod,
			[]corev1.ScopedResourceSelectorRequirement{c.scope})
		if err != nil || len(in) == 1 != c.want {
			t.Errorf("%s: in scope is %v (%v), want %v", name, len(in) == 1, err, c.want)
		}
	}
}

func TestLimitedPodsMustBeExplicit(t *testing.T) {
	t.Parallel()
	e := evaluatorOf(t, "pods")
	names := []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceRequestsCPU, corev1.ResourceLimitsMemory,
	}
	if err := e.Constraints(names, pod(nil)); err == nil {
		t.Error("a container without a CPU request and a memory limit was accepted")
	}
	explicit := pod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: list("cpu", "0"),
			Limits:   list("memory", "1Gi"),
		}
	})
	if err := e.Constraints(names, explicit); err != nil {
		t.Error(err)
	}
	bounded := pod(func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "1")}
	})
	if err := e.Constraints(names, bounded); err != nil {
		t.Errorf("a pod with pod-level resources: %v", err)
	}
}

// What each object costs to count does not depend on how many resources a quota names.
func TestUsageOfManyNames(t *testing.T) {
	const objects = 100
	list := func(schema.GroupVersionResource) (cache.GenericLister, error) {
		pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		for i := range objects {
			err := pods.Add(pod(func(p *corev1.Pod) { p.Name, p.Namespace = fmt.Sprint(i), "n" }))
			if err != nil {
				return nil, err
			}
		}
		return cache.NewGenericLister(pods, corev1.Resource("pods")), nil
	}
	q := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n"},
		Spec: corev1.ResourceQuotaSpec{
			Hard:   corev1.ResourceList{"pods": resource.MustParse("5")},
			Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort},
		},
	}
	evaluators := Configuration(list).Evaluators()[:1]
	count := func() float64 {
		return testing.AllocsPerRun(1, func() {
			used, err := Used(q, evaluators)
			if n := used["pods"]; err != nil || n.Value() != objects {
				t.Errorf("%d pods are counted, want %d: %v", n.Value(), objects, err)
			}
		})
	}
	before := count()
	for i := range 1000 {
		q.Spec.Hard[corev1.ResourceName(fmt.Sprint("requests.example.com/", i))] = resource.MustParse("5")
	}
	if more := count() - before; more > 5000 {
		t.Errorf("1000 names cost %v more allocations", more)
	}
}
