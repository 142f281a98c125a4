package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// writeInterval leaves the machine time for etcd.
	writeInterval = 20 * time.Millisecond
	// goesOn is how many acknowledged writes show that writes go on.
	goesOn = 10
	// leaderLease is the Lease of the replica that runs the control loops.
	leaderLease = "kinproc-controllers"
)

// auditPolicy records what control loops create and update, with the revisions.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [kubernetes-super-admin]}
- {level: RequestResponse, verbs: [create, update]}
`

// work is what clients do in a trouble: one writes to each replica.
type work struct {
	t       *testing.T
	c       *cluster
	name    string
	writers []*writer
	probes  int
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// writer creates objects, and counts in another one.
type writer struct {
	replica *labReplica
	name    string

	mu      sync.Mutex
	created []string
	counter int
	last    time.Time
	pause   time.Duration // the longest
	failed  int
	err     error // the last one
}

func (c *cluster) startWork(t *testing.T) *work {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &work{t: t, c: c, name: "w" + strconv.FormatInt(c.revision(t), 10), cancel: cancel}
	t.Cleanup(w.stop)
	for _, r := range c.replicas {
		writer := &writer{replica: r, name: w.name + "-" + r.name, last: time.Now()}
		w.writers = append(w.writers, writer)
		w.running.Go(func() { writer.run(ctx, w.name) })
	}
	return w
}

func (w *work) stop() {
	w.cancel()
	w.running.Wait()
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context, label string) {
	maps := w.replica.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	labels := map[string]string{"work": label}
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	var counter *corev1.ConfigMap
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s-%d", w.name, n)
		_, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		}, metav1.CreateOptions{})
		w.note(ctx, err, func() { w.created = append(w.created, name) })
		if counter, err = w.count(ctx, counter); err == nil {
			count, _ := strconv.Atoi(counter.Data["n"])
			w.note(ctx, nil, func() { w.counter = count })
		} else {
			w.note(ctx, err, nil)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// count adds one to the number in the counter that was last seen, if any. The counter that it
// returns is nil after an error.
func (w *writer) count(ctx context.Context, seen *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	maps := w.replica.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if seen == nil {
		var err error
		seen, err = maps.Get(ctx, w.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return maps.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: w.name}, Data: map[string]string{"n": "1"},
			}, metav1.CreateOptions{})
		}
		if err != nil {
			return nil, err
		}
	}
	n, _ := strconv.Atoi(seen.Data["n"])
	seen.Data = map[string]string{"n": strconv.Itoa(n + 1)}
	updated, err := maps.Update(ctx, seen, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	return updated, nil
}

// note notes the result of a write.
func (w *writer) note(ctx context.Context, err error, acknowledged func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			w.failed, w.err = w.failed+1, err
		}
		return
	}
	acknowledged()
	now := time.Now()
	w.pause, w.last = max(w.pause, now.Sub(w.last)), now
}

// await waits until control loops and the writers at all replicas that clients can reach have done
// something since it was called. It returns how long the loops took.
func (w *work) await(when string, unreachable *labReplica) (loops time.Duration) {
	w.t.Helper()
	began := time.Now()
	var reachable []*writer
	written := map[*writer]int{}
	for _, writer := range w.writers {
		if writer.replica != unreachable {
			reachable = append(reachable, writer)
			writer.mu.Lock()
			written[writer] = len(writer.created)
			writer.mu.Unlock()
		}
	}
	w.probes++
	probe := fmt.Sprintf("%s-%d", w.name, w.probes)
	ask := -1
	eventuallyIn(w.t, "control loops "+when, func(ctx context.Context) (bool, error) {
		ask++
		client := reachable[ask%len(reachable)].replica.client
		_, err := client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: probe}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return false, err
		}
		_, err = client.CoreV1().ServiceAccounts(probe).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	loops = time.Since(began)
	eventuallyIn(w.t, "writes "+when, func(context.Context) (bool, error) {
		for _, writer := range reachable {
			writer.mu.Lock()
			more, failed, err := len(writer.created)-written[writer], writer.failed, writer.err
			writer.mu.Unlock()
			if more < goesOn {
				return false, fmt.Errorf("%s: %d writes, %d in all failed: %w", writer.replica.name, more,
					failed, err)
			}
		}
		return true, nil
	})
	return loops
}

// pauses says how long each writer has waited for an acknowledged write at most.
func (w *work) pauses() string {
	var pauses []string
	for _, writer := range w.writers {
		pauses = append(pauses, fmt.Sprintf("%s %s (%d written, %d failed)", writer.replica.name,
			round(writer.pause), len(writer.created)+writer.counter, writer.failed))
	}
	return strings.Join(pauses, ", ")
}

// check looks for all that was acknowledged, at each replica, in the state that most members of
// etcd agree on.
func (w *work) check() {
	w.t.Helper()
	for _, at := range w.c.replicas {
		maps := at.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
		have := map[string]bool{}
		list, err := maps.List(w.t.Context(), metav1.ListOptions{LabelSelector: "work=" + w.name})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, object := range list.Items {
			have[object.Name] = true
		}
		for _, writer := range w.writers {
			for _, name := range writer.created {
				if !have[name] {
					w.t.Errorf("%s was acknowledged but is not at %s", name, at.name)
				}
			}
			counter, err := maps.Get(w.t.Context(), writer.name, metav1.GetOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			// More may have been written although the responses were lost.
			if n, err := strconv.Atoi(counter.Data["n"]); err != nil || n < writer.counter {
				w.t.Errorf("the counter %s at %s is %q, but %d was acknowledged", writer.name, at.name,
					counter.Data["n"], writer.counter)
			}
		}
	}
}

func (c *cluster) revision(t *testing.T) int64 {
	t.Helper()
	var revision int64
	eventuallyIn(t, "revision of etcd", func(ctx context.Context) (bool, error) {
		got, err := c.etcd.Get(ctx, "revision")
		if err == nil {
			revision = got.Header.Revision
		}
		return err == nil, err
	})
	return revision
}

// term is when a replica began to run the control loops, or, without a replica, when none did.
type term struct {
	revision int64
	replica  string
	taken    string // by the clock of the replica
}

// checkLeaders checks that every act of a control loop since a revision was one of the replica that
// held the lease at that revision. Revisions are the order in which etcd did things, so it takes no
// clock to compare them.
func (c *cluster) checkLeaders(t *testing.T, began int64) {
	t.Helper()
	terms := c.terms(t, began)
	acts := 0
	for _, r := range c.replicas {
		for _, act := range r.acts(t) {
			if act.revision <= began {
				continue
			}
			acts++
			n, _ := slices.BinarySearchFunc(terms, act.revision+1,
				func(t term, revision int64) int { return int(t.revision - revision) })
			if holder := terms[n-1]; holder.replica != r.name {
				t.Errorf("%s did %s at revision %d (asked at %s, answered at %s), but the lease was "+
					"that of %q since %d, taken at %s", r.name, act.what, act.revision, act.asked,
					act.answered, holder.replica, holder.revision, holder.taken)
			}
		}
	}
	var holders []string
	for _, term := range terms {
		holders = append(holders, term.replica)
	}
	t.Logf("%d acts of control loops, by those who held the lease: %q", acts, holders)
}

// terms returns who held the lease at a revision and since then.
func (c *cluster) terms(t *testing.T, began int64) []term {
	t.Helper()
	const key = "/registry/leases/kube-system/" + leaderLease
	got, err := c.etcd.Get(t.Context(), key, clientv3.WithRev(began))
	if err != nil {
		t.Fatal(err)
	}
	var terms []term
	add := func(revision int64, value []byte) {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		lease := decoded.(*coordinationv1.Lease).Spec
		holder := ""
		if id := lease.HolderIdentity; id != nil {
			holder, _, _ = strings.Cut(*id, "_")
		}
		if len(terms) == 0 || terms[len(terms)-1].replica != holder {
			taken := ""
			if at := lease.AcquireTime; at != nil {
				taken = at.UTC().Format(time.RFC3339Nano)
			}
			terms = append(terms, term{revision, holder, taken})
		}
	}
	add(began, got.Kvs[0].Value)
	if got, err = c.etcd.Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for last := got.Kvs[0].ModRevision; last > began; {
		response, ok := <-c.etcd.Watch(ctx, key, clientv3.WithRev(began+1))
		if err := response.Err(); err != nil || !ok {
			t.Fatalf("the history of the lease: %v", err)
		}
		for _, event := range response.Events {
			add(event.Kv.ModRevision, event.Kv.Value)
			began = event.Kv.ModRevision
		}
	}
	return terms
}

// act is an object that a control loop has written.
type act struct {
	revision        int64
	what            string
	asked, answered string // when, by the clock of the replica
}

// acts returns what control loops of the replica have created and updated.
func (r *labReplica) acts(t *testing.T) []act {
	t.Helper()
	log, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Metadata struct{ ResourceVersion string }
	}
	var acts []act
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, RequestURI, UserAgent   string
			RequestReceivedTimestamp      string
			StageTimestamp                string
			ResponseStatus                struct{ Code int }
			RequestObject, ResponseObject object
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue // what is being written
		}
		revision, err := strconv.ParseInt(event.ResponseObject.Metadata.ResourceVersion, 10, 64)
		// An update that changes nothing returns the revision of an earlier one.
		if !strings.HasPrefix(event.UserAgent, "kube-controller-manager/") || err != nil ||
			event.ResponseStatus.Code >= 300 ||
			event.RequestObject.Metadata.ResourceVersion == event.ResponseObject.Metadata.ResourceVersion {
			continue
		}
		acts = append(acts, act{revision, event.Verb + " " + event.RequestURI,
			event.RequestReceivedTimestamp, event.StageTimestamp})
	}
	return acts
}
