package deployments

import (
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// TestRevisionHistory goes back to one set so often that its oldest revisions are dropped.
func TestRevisionHistory(t *testing.T) {
	t.Parallel()
	var rs appsv1.ReplicaSet
	const last = 5000
	for next := range int64(last) {
		annotate(&appsv1.Deployment{}, &rs, next+1, true)
	}
	past := strings.Split(rs.Annotations[revisionHistory], ",")
	if n := len(rs.Annotations[revisionHistory]); n > maxHistory || n < maxHistory-10 ||
		past[len(past)-1] != strconv.Itoa(last-1) {
		t.Errorf("%d bytes of history, up to revision %s", n, past[len(past)-1])
	}
}
