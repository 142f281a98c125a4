package nodettl

import "testing"

// TestSize adds 2,100 nodes and removes them again. The numbers are those at which
// kube-controller-manager changes the annotations.
func TestSize(t *testing.T) {
	t.Parallel()
	var s size
	if s.ttl() != 0 {
		t.Errorf("without nodes: %d s, want 0", s.ttl())
	}
	change := func(step func(), ttls map[int]int) {
		t.Helper()
		for range 2100 {
			before := s.ttl()
			step()
			want, changes := ttls[s.nodes]
			if !changes {
				want = before
			}
			if s.ttl() != want {
				t.Fatalf("%d nodes: %d s, want %d", s.nodes, s.ttl(), want)
			}
		}
	}
	change(s.add, map[int]int{101: 15, 501: 30, 1001: 60, 2001: 300})
	change(s.remove, map[int]int{1799: 60, 899: 30, 449: 15, 89: 0})
}
