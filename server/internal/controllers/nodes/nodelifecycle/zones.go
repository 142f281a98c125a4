package nodelifecycle

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"
)

const (
	// excluded is the label of nodes whose failure says nothing about their zone.
	excluded = "node.kubernetes.io/exclude-disruption"
	// disrupted is the share of nodes that are not ready from which a zone counts as disrupted, and
	// few is the number of them that is never too many.
	disrupted, few = 0.55, 2
	// large is the number of nodes above which a disrupted zone still loses pods, slowly.
	large = 50
)

// zones decide when a node that is not ready loses its pods: soon if it fails alone. But if many
// fail, what has failed is probably the network.
type zones struct {
	patience Patience

	mu    sync.Mutex
	nodes map[string]*member
	zones map[string]*zone
	ready int // of the nodes that count
	// judging is set as soon as all nodes are known that existed at the start.
	judging bool
}

// member is a node of a zone.
type member struct {
	zone   string
	counts bool // for the state of its zone
	ready  bool
	// failed is when the node was first seen not to be ready. It had its turn if evicted is set.
	failed  time.Time
	evicted bool
}

type zone struct {
	members         int // whether they count or not
	ready, notReady int // of those that count
	speed           speed
	next            time.Time // when the turn of another node may come
}

// speed says how fast the nodes of a zone may lose their pods.
type speed int

const (
	unknown speed = iota
	normal
	slow
	halted
	reversed // those that have begun to lose their pods end that, too
)

func newZones(p Patience) *zones {
	return &zones{patience: p, nodes: map[string]*member{}, zones: map[string]*zone{}}
}

// seen notes the state of a node. It returns the nodes to look at again.
func (z *zones) seen(n *corev1.Node) []string {
	r := condition(n, corev1.NodeReady)
	_, without := n.Labels[excluded]
	m := member{
		zone: topology.GetZoneKey(n), counts: !without,
		ready: r != nil && r.Status == corev1.ConditionTrue,
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	now := time.Now()
	if old, ok := z.nodes[n.Name]; ok {
		if old.zone == m.zone && old.counts == m.counts && old.ready == m.ready {
			return nil
		}
		z.countLocked(old, -1)
		if !m.ready {
			m.failed, m.evicted = old.failed, old.evicted
		}
	}
	if !m.ready && m.failed.IsZero() {
		m.failed = now
	}
	z.nodes[n.Name] = &m
	z.countLocked(&m, 1)
	return z.judgeLocked(now)
}

// gone forgets a node. It returns the nodes to look at again.
func (z *zones) gone(name string) []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	m, ok := z.nodes[name]
	if !ok {
		return nil
	}
	delete(z.nodes, name)
	z.countLocked(m, -1)
	return z.judgeLocked(time.Now())
}

// countLocked counts a node, or no longer. The caller holds z.mu.
func (z *zones) countLocked(m *member, by int) {
	in, ok := z.zones[m.zone]
	if !ok {
		in = &zone{}
		z.zones[m.zone] = in
	}
	in.members += by
	switch {
	case !m.counts:
	case m.ready:
		in.ready += by
		z.ready += by
	default:
		in.notReady += by
	}
	if in.members == 0 {
		delete(z.zones, m.zone)
	}
}

// judgeLocked sets the speeds of all zones. It returns the nodes that are not ready of those zones
// whose speed changed. The caller holds z.mu.
func (z *zones) judgeLocked(now time.Time) []string {
	if !z.judging {
		return nil
	}
	changed := map[string]bool{}
	for key, in := range z.zones {
		was := in.speed
		if in.speed = in.judge(z.ready == 0); in.speed == was {
			continue
		}
		changed[key] = true
		// A zone that recovers gets the time to do so.
		if was == halted || was == reversed || in.next.After(now) {
			in.next = now.Add(z.pause(in.speed))
		}
	}
	var affected []string
	if len(changed) > 0 {
		for name, m := range z.nodes {
			if !m.ready && changed[m.zone] {
				affected = append(affected, name)
			}
		}
	}
	return affected
}

// judge returns the speed of a zone. If no node of any zone is ready, this program is probably the
// one that cannot be reached.
func (z *zone) judge(noneIsReady bool) speed {
	all := z.ready + z.notReady
	switch {
	case noneIsReady:
		return reversed
	case z.ready == 0 || z.notReady <= few || float64(z.notReady) < disrupted*float64(all):
		return normal
	case all > large:
		return slow
	}
	return halted
}

func (z *zones) pause(s speed) time.Duration {
	if s == slow {
		return z.patience.SlowPause
	}
	return z.patience.Pause
}

// evicts reports whether a node that is not ready loses its pods now. If wait is positive, it is
// worth asking again after that time. Otherwise it is when something changes. A node that is losing
// its pods goes on with that, unless no node is ready any more.
func (z *zones) evicts(name string, losing bool) (yes bool, wait time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	now := time.Now()
	if !z.judging {
		z.judging = true
		z.judgeLocked(now) // nothing was decided before
	}
	m, ok := z.nodes[name]
	if !ok || m.ready {
		return false, 0 // the caller is behind
	}
	in := z.zones[m.zone]
	switch wait := max(z.patience.EvictAfter-now.Sub(m.failed), in.next.Sub(now)); {
	case in.speed == reversed:
		m.evicted = false
		return false, 0
	case losing, m.evicted:
	case in.speed == halted:
		return false, 0
	case wait > 0:
		return false, wait
	default:
		in.next = now.Add(z.pause(in.speed))
	}
	m.evicted = true
	return true, 0
}
