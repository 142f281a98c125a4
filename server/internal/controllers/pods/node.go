package pods

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// nodeIndex is the index of pods by the node that they are bound to.
const nodeIndex = "node"

// WithNodes returns the watch of pods with the index that [OnNode] needs.
func WithNodes(w loop.Watch) loop.Watch {
	indexers := maps.Clone(w.Indexers)
	if indexers == nil {
		indexers = cache.Indexers{}
	}
	indexers[nodeIndex] = func(obj any) ([]string, error) {
		p, ok := obj.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" {
			return nil, nil
		}
		return []string{p.Spec.NodeName}, nil
	}
	w.Indexers = indexers
	return w
}

// OnNode returns the pods that are bound to a node. It panics unless the watch of the pods has the
// index of [WithNodes].
func OnNode(pods cache.Indexer, node string) []*corev1.Pod {
	found, err := pods.ByIndex(nodeIndex, node)
	if err != nil {
		panic(err)
	}
	bound := make([]*corev1.Pod, 0, len(found))
	for _, obj := range found {
		bound = append(bound, obj.(*corev1.Pod))
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
