package examples_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var cutFor = flag.Duration("cut", 0,
	"how long each trouble of TestReplicasInTrouble lasts at least; if it is 0, until writes and "+
		"control loops go on")

// moveLimit is how soon control loops go on elsewhere. A busy machine may take longer, so the limit
// holds with -cut only.
const moveLimit = 5 * time.Second

func flagValue(name string) string { return flag.Lookup(name).Value.String() }

// cluster is three members of etcd and three replicas, each on a host of its own.
type cluster struct {
	members  []*labMember
	replicas []*labReplica
	etcd     *clientv3.Client
}

// trouble is something that happens to a member or to a replica.
type trouble struct {
	name string
	// begin begins the trouble and returns the replica that clients may not reach meanwhile, if
	// any, and the function that ends the trouble.
	begin func(t *testing.T, c *cluster) (unreachable *labReplica, end func())
}

// TestReplicasInTrouble runs three replicas on three members of etcd in network namespaces of their
// own, and cuts off the leader among the members and among the replicas, moves their clocks, and
// fills the disk of a member. Clients write all the time. What was acknowledged must be there, and
// the control loops must run, and in one replica at a time.
func TestReplicasInTrouble(t *testing.T) {
	t.Parallel()
	if !insideLab(t) {
		return
	}
	c := startCluster(t)
	troubles := []trouble{
		{"clock of an etcd member", func(t *testing.T, c *cluster) (*labReplica, func()) {
			return nil, jump(t, c.leadingMember(t).process.Process)
		}},
		{"clock of a replica", func(t *testing.T, c *cluster) (*labReplica, func()) {
			r := c.leadingReplica(t)
			end := jump(t, r.process.Process)
			made, err := r.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "clock"}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Error(err)
			} else if ahead := time.Until(made.CreationTimestamp.Time); ahead < 50*time.Minute {
				t.Errorf("the clock of the replica is %v ahead", ahead)
			}
			return nil, end
		}},
	}
	for _, way := range []struct {
		name           string
		sent, received bool
	}{
		{"cut off", true, true}, {"not heard", true, false}, {"deaf", false, true},
	} {
		troubles = append(troubles,
			trouble{"etcd member " + way.name, func(t *testing.T, c *cluster) (*labReplica, func()) {
				m := c.leadingMember(t)
				m.cut(way.sent, way.received)
				return nil, m.mend
			}},
			trouble{"replica " + way.name, func(t *testing.T, c *cluster) (*labReplica, func()) {
				r := c.leadingReplica(t)
				r.cut(way.sent, way.received)
				return r, r.mend
			}})
	}
	troubles = append(troubles, trouble{"full disk of an etcd member", fullDisk})
	for _, trouble := range troubles {
		if !t.Run(trouble.name, func(t *testing.T) { c.endure(t, trouble) }) {
			return // what follows would say nothing
		}
	}
}

// jump lets the clock of a process jump an hour forward. The function that it returns lets it jump
// back.
func jump(t *testing.T, process *os.Process) (end func()) {
	t.Helper()
	c := holdClock(t, process)
	c.set(t, time.Hour)
	return func() { c.set(t, 0) }
}

// fullDisk fills the disk of the leader of etcd, which then ends by itself. An administrator makes
// room and starts it again.
func fullDisk(t *testing.T, c *cluster) (unreachable *labReplica, end func()) {
	t.Helper()
	m := c.leadingMember(t)
	restore := m.fillDisk(t)
	return nil, func() {
		select {
		case <-m.ended:
		case <-t.Context().Done():
		}
		restore()
		m.run(t)
	}
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	l := newLab(t)
	c := &cluster{members: startLabMembers(t, l)}
	var members []*member
	for _, m := range c.members {
		members = append(members, &m.member)
	}
	etcd, endpoints := etcdClient(t, members)
	c.etcd = etcd
	t.Cleanup(func() { _ = etcd.Close() }) // its streams may be cut off
	policy := filepath.Join(t.TempDir(), "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	shared := []string{"--etcd-servers=" + strings.Join(endpoints, ","),
		"--pki-dir=" + filepath.Join(t.TempDir(), "pki"), "--audit-policy-file=" + policy}
	for i := range 3 {
		r := startLabReplica(t, l.connect(fmt.Sprintf("replica-%d", i)), shared)
		if i == 0 {
			r.dial(t) // once it has made the keys
		}
		c.replicas = append(c.replicas, r)
	}
	for _, r := range c.replicas[1:] {
		r.dial(t)
	}
	return c
}

// leadingMember returns the leader of etcd, as soon as there is one.
func (c *cluster) leadingMember(t *testing.T) (leader *labMember) {
	t.Helper()
	eventuallyIn(t, "leader of etcd", func(ctx context.Context) (bool, error) {
		for _, m := range c.members {
			leads, err := m.leads(ctx, c.etcd)
			if err != nil {
				return false, err
			}
			if leads {
				leader = m
			}
		}
		return leader != nil, nil
	})
	return leader
}

// leadingReplica returns the replica that runs the control loops, as soon as there is one.
func (c *cluster) leadingReplica(t *testing.T) (leader *labReplica) {
	t.Helper()
	eventuallyIn(t, "replica that runs the control loops", func(ctx context.Context) (bool, error) {
		lease, err := c.replicas[0].client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx,
			leaderLease, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return false, err
		}
		for _, r := range c.replicas {
			if strings.HasPrefix(*lease.Spec.HolderIdentity, r.name+"_") {
				leader = r
			}
		}
		return leader != nil, nil
	})
	return leader
}

// endure writes and lets loops work before, during and after a trouble.
func (c *cluster) endure(t *testing.T, trouble trouble) {
	t.Helper()
	began := c.revision(t)
	work := c.startWork(t)
	work.await("before the trouble", nil)
	unreachable, end := trouble.begin(t, c)
	since := time.Now()
	moved := work.await("during the trouble", unreachable)
	hold := time.NewTimer(*cutFor - time.Since(since))
	select {
	case <-hold.C:
	case <-t.Context().Done():
	}
	work.await("at the end of the trouble", unreachable)
	lasted := time.Since(since)
	end()
	ended := time.Now()
	work.await("after the trouble", nil)
	c.awaitMembers(t)
	recovered := time.Since(ended)
	work.stop()
	t.Logf("after %s of it, all was well again in %s; control loops worked after %s; the longest "+
		"pauses of writes: %s", round(lasted), round(recovered), round(moved), work.pauses())
	if *cutFor > 0 && moved > moveLimit {
		t.Errorf("control loops went on after %s only", moved)
	}
	work.check()
	c.checkLeaders(t, began)
}

// awaitMembers waits until all members have what the leader has.
func (c *cluster) awaitMembers(t *testing.T) {
	t.Helper()
	eventuallyIn(t, "members of etcd", func(ctx context.Context) (bool, error) {
		revision := c.revision(t)
		for _, m := range c.members {
			status, err := c.etcd.Status(ctx, m.Client)
			if err != nil || status.Header.Revision < revision {
				return false, err
			}
		}
		return true, nil
	})
}

// eventuallyIn waits for a condition. Each look has a second, since those that are cut off never
// answer.
func eventuallyIn(t *testing.T, what string, done func(ctx context.Context) (bool, error)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	var last error
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		ok, err := done(ctx)
		cancel()
		if ok {
			return
		}
		last = err
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("gave up waiting: %s: %v", what, last)
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, errors.Join(last, context.Cause(t.Context())))
		}
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
