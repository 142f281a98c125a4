// Package nodettl tells kubelets how long they may cache the objects that pods refer to: the more
// nodes there are, the longer.
package nodettl

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "ttl-controller"

// Loop is the loop that annotates nodes.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "ttl",
		Purpose:  "annotates nodes with how long kubelets may cache Secrets and ConfigMaps",
		Workload: true, Workers: 5, Begin: begin, // as many as in kube-controller-manager
		After: []schema.GroupResource{corev1.Resource("nodes")},
	}
}

type controller struct {
	*loop.Controller
	nodes cache.SharedIndexInformer

	mu   sync.Mutex
	size size // guarded by mu
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{Controller: l, nodes: l.Informer(&corev1.Node{})}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{loop.On(c.nodes, c.changed)}}
}

func (c *controller) changed(old, n *corev1.Node) {
	c.mu.Lock()
	before := c.size.ttl()
	switch {
	case old == nil:
		c.size.add()
	case n == nil:
		c.size.remove()
	}
	after := c.size.ttl()
	c.mu.Unlock()
	// kube-controller-manager leaves the other nodes until their kubelets write their status.
	if before != after {
		for _, key := range c.nodes.GetStore().ListKeys() {
			c.Enqueue(key)
		}
	} else if n != nil {
		c.Enqueue(n.Name)
	}
}

func (c *controller) sync(ctx context.Context, name string) (time.Duration, error) {
	n := loop.Get[corev1.Node](c.nodes, name)
	if n == nil {
		return 0, nil
	}
	c.mu.Lock()
	want := c.size.ttl()
	c.mu.Unlock()
	is, ok := n.Annotations[corev1.ObjectTTLAnnotationKey]
	if seconds, err := strconv.Atoi(is); ok && err == nil && seconds == want {
		return 0, nil
	}
	_, err := c.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, corev1.ObjectTTLAnnotationKey, want),
		metav1.PatchOptions{})
	return 0, loop.IgnoreNotFound(err)
}

// size is how many nodes there are, and in which step that is. Steps overlap, so that a node that
// comes and goes does not change the annotations of all others.
type size struct{ nodes, step int }

// steps are those of kube-controller-manager.
func (s *size) steps() []step {
	return []step{
		{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, math.MaxInt, 300},
	}
}

// step is a range of numbers of nodes, and the seconds for which objects may be cached in it.
type step struct{ least, most, ttl int }

func (s *size) add() {
	if s.nodes++; s.nodes > s.steps()[s.step].most {
		s.step++
	}
}

func (s *size) remove() {
	if s.nodes--; s.nodes < s.steps()[s.step].least {
		s.step--
	}
}

func (s *size) ttl() int { return s.steps()[s.step].ttl }
