package pods

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// OnNode returns the pods that are bound to a node.
func OnNode(lister corelisters.PodLister, node string) []*corev1.Pod {
	all, err := lister.List(labels.Everything())
	if err != nil {
		return nil // a cache does not fail
	}
	var bound []*corev1.Pod
	for _, p := range all {
		if p.Spec.NodeName == node {
			bound = append(bound, p)
		}
	}
	return bound
}

// Stopwatches measure for how long something has been the case with pods. A controller that forgets
// the keys of pods that are gone when it processes these keys leaves nothing behind.
type Stopwatches struct {
	mu     sync.Mutex
	starts map[string]start // by key
}

type start struct {
	pod types.UID
	at  time.Time
}

// Elapsed returns the time since the first call for a pod, or since the first one after
// [Stopwatches.Forget].
func (s *Stopwatches) Elapsed(p *corev1.Pod) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := cache.MetaObjectToName(p).String()
	if s.starts[key].pod != p.UID {
		if s.starts == nil {
			s.starts = map[string]start{}
		}
		s.starts[key] = start{p.UID, time.Now()}
	}
	return time.Since(s.starts[key].at)
}

// Forget resets the time of the pod with a key. It reports whether there was one.
func (s *Stopwatches) Forget(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.starts[key]
	delete(s.starts, key)
	return ok
}
