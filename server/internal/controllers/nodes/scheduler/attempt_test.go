package scheduler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkFind measures the decisions about 1,000 pods, without any requests.
func BenchmarkFind(b *testing.B) {
	const pods = 1000
	labels := map[string]string{"app": "a"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	for name, change := range map[string]func(*corev1.Pod){
		"plain": func(*corev1.Pod) {},
		"spread": func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone,
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector,
			}}
		},
		"affinity": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					LabelSelector: selector, TopologyKey: corev1.LabelTopologyZone,
				}},
			}}
		},
	} {
		for _, nodes := range []int{100, 1000, 5000} {
			b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
				var total time.Duration
				for b.Loop() {
					c := newCluster()
					for i := range nodes {
						c.setNode(benchmarkNode(i))
					}
					start := time.Now()
					for i := range pods {
						p := benchmarkPod(i)
						p.Labels = labels
						change(p)
						w, err := newWishes(p)
						if err != nil {
							b.Fatal(err)
						}
						a := &attempt{pod: newPod(p), wishes: w, cluster: c}
						n, f := a.find()
						if n == nil {
							b.Fatal(f)
						}
						c.put(a.pod, n.name, true)
					}
					total += time.Since(start)
				}
				b.ReportMetric(float64(total.Microseconds())/float64(b.N*pods), "µs/pod")
			})
		}
	}
}

func benchmarkNode(i int) *corev1.Node {
	name := fmt.Sprint("node-", i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3),
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("64"),
			corev1.ResourceMemory: resource.MustParse("64Gi"),
			corev1.ResourcePods:   resource.MustParse("110"),
		}},
	}
}

func benchmarkPod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i)),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"),
			}},
		}}},
	}
}
