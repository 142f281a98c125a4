package looptest

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// BenchmarkSchedule measures how long it takes until 1,000 pods that exist have a node, from the
// start of a scheduler.
func BenchmarkSchedule(b *testing.B) {
	const pods = 1000
	for _, nodes := range []int{100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			var total time.Duration
			for b.Loop() {
				b.StopTimer()
				c := schedulerConnect(b)
				for i := range nodes {
					c.node(fmt.Sprint("node-", i), "32")
				}
				for i := range pods {
					c.pod(fmt.Sprint("pod-", i), "100m", func(p *corev1.Pod) {
						p.OwnerReferences = []metav1.OwnerReference{{
							APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true),
						}}
					})
				}
				b.StartTimer()
				start := time.Now()
				schedulerRunUntilAll(b, c, pods)
				total += time.Since(start)
			}
			b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "schedule-ms/op")
		})
	}
}

// schedulerRunUntilAll runs a scheduler until a number of pods have a node.
func schedulerRunUntilAll(b *testing.B, c schedulerCluster, pods int) {
	b.Helper()
	bound := make(chan struct{}, pods)
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = "spec.nodeName!="
		}))
	workloadtest.Must(factory.Core().V1().Pods().Informer().AddEventHandler(
		cache.ResourceEventHandlerFuncs{AddFunc: func(any) { bound <- struct{}{} }}))(b)
	ctx, cancel := context.WithCancel(b.Context())
	factory.StartWithContext(ctx)
	defer func() {
		cancel()
		factory.Shutdown()
	}()
	defer schedulerRun(b, c)()
	for range pods {
		<-bound
	}
}
