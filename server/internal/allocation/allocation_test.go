package allocation_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/allocation"
)

// cluster is an etcd that several allocators can use.
type cluster struct {
	resources generic.RESTOptionsGetter
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	etcd, err := embed.Start(t.Context(), embed.Options{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Stop(context.Background()); err != nil { // the test's context has ended
			t.Error(err)
		}
	})
	backend := chain.NewStorage(chain.StorageConfig{Client: etcd.Client(), HistoryKept: time.Hour})
	t.Cleanup(backend.Stop)
	resources, err := core.RESTOptions(backend)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{resources: resources}
}

func (c *cluster) allocator(t testing.TB, options allocation.Options) *allocation.Allocator {
	t.Helper()
	a, err := allocation.New(t.Context(), options, c.resources)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func service(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}}
}

// TestClusterIPs uses up a block of 14 addresses with two concurrent allocators.
func TestClusterIPs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	options := allocation.Options{CIDRs: []string{"10.1.0.0/28"}}
	allocators := []*allocation.Allocator{c.allocator(t, options), c.allocator(t, options)}
	var mu sync.Mutex
	got := sets.New[string]()
	var running sync.WaitGroup
	for i := range 14 {
		running.Go(func() {
			ip, err := allocators[i%2].AllocateIP(t.Context(), service(strconv.Itoa(i)),
				corev1.IPv4Protocol, "", false)
			if err != nil {
				t.Errorf("address %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got.Insert(ip)
		})
	}
	running.Wait()
	if len(got) != 14 || got.Has("10.1.0.0") || got.Has("10.1.0.15") {
		t.Fatalf("got %d addresses: %v", len(got), sets.List(got))
	}
	a := allocators[0]
	if ip, err := a.AllocateIP(t.Context(), service("more"), corev1.IPv4Protocol,
		"", false); err == nil {
		t.Errorf("an exhausted block returned %s", ip)
	}
	if _, err := a.AllocateIP(t.Context(), service("more"), corev1.IPv4Protocol,
		"10.1.0.3", false); !errors.Is(err, allocation.ErrTaken) {
		t.Errorf("allocate an address in use: got %v, want ErrTaken", err)
	}
	if err := a.ReleaseIP(t.Context(), service("stranger"), "10.1.0.3"); err != nil {
		t.Error(err)
	}
	if _, err := a.AllocateIP(t.Context(), service("more"), corev1.IPv4Protocol,
		"10.1.0.3", false); !errors.Is(err, allocation.ErrTaken) {
		t.Errorf("allocate an address after another service released it: got %v, want ErrTaken", err)
	}
	for _, outside := range []string{"10.1.0.0", "10.1.0.15", "10.2.0.1"} {
		if _, err := a.AllocateIP(t.Context(), service("more"), corev1.IPv4Protocol,
			outside, false); err == nil {
			t.Errorf("allocated %s, which is outside the block", outside)
		}
	}
}

// nodePort allocates one node port.
func nodePort(
	a *allocation.Allocator, ctx context.Context, port int32, dryRun bool,
) (got int32, err error) {
	err = a.AllocateNodePorts(ctx, dryRun, func(reserve func(int32) (int32, error)) (err error) {
		got, err = reserve(port)
		return err
	})
	return got, err
}

// A request for many node ports is one write, and gets all of them or none, also in a dry run.
func TestManyNodePorts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.allocator(t, allocation.Options{FirstNodePort: 30000, LastNodePort: 32767})
	for _, dryRun := range []bool{true, false} {
		got := sets.New[int32]()
		take := func(n int) func(func(int32) (int32, error)) error {
			return func(reserve func(int32) (int32, error)) error {
				got.Clear()
				for range n {
					port, err := reserve(0)
					if err != nil {
						return err
					}
					got.Insert(port)
				}
				return nil
			}
		}
		if err := a.AllocateNodePorts(t.Context(), dryRun, take(2769)); err == nil {
			t.Errorf("dry run %v: got more ports than there are", dryRun)
		}
		if err := a.AllocateNodePorts(t.Context(), dryRun, take(2768)); err != nil || len(got) != 2768 {
			t.Errorf("dry run %v: got %d different ports, %v", dryRun, len(got), err)
		}
	}
}

func TestNodePorts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	options := allocation.Options{FirstNodePort: 30000, LastNodePort: 30019}
	allocators := []*allocation.Allocator{c.allocator(t, options), c.allocator(t, options)}
	a := allocators[0]
	got := sets.New[int32]()
	for i := range 20 {
		port, err := nodePort(allocators[i%2], t.Context(), 0, false)
		if err != nil {
			t.Fatal(err)
		}
		// The first 16 ports are left to explicit requests until the others are used up.
		if i < 4 && port < 30016 {
			t.Errorf("got port %d of the static part before the other ports were used up", port)
		}
		got.Insert(port)
	}
	if len(got) != 20 {
		t.Fatalf("got %v", sets.List(got))
	}
	if _, err := nodePort(a, t.Context(), 0, false); err == nil {
		t.Error("an exhausted range returned a port")
	}
	if err := a.ReleaseNodePorts(t.Context(), 30007); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if port, err := nodePort(a, t.Context(), 0, true); err != nil || port != 30007 {
			t.Errorf("dry run: got port %d (%v), want 30007", port, err)
		}
	}
	if _, err := nodePort(a, t.Context(), 30007, false); err != nil {
		t.Error(err)
	}
	if _, err := nodePort(a, t.Context(), 30007, false); !errors.Is(err, allocation.ErrTaken) {
		t.Errorf("allocate a port in use: got %v, want ErrTaken", err)
	}
	if _, err := nodePort(a, t.Context(), 30020, false); err == nil {
		t.Error("allocated a port outside the range")
	}
	// A server with another range keeps the reservations that are in both ranges.
	moved := c.allocator(t, allocation.Options{FirstNodePort: 30010, LastNodePort: 30029})
	if _, err := nodePort(moved, t.Context(), 30010, false); !errors.Is(err,
		allocation.ErrTaken) {
		t.Errorf("allocate a port in use after the range changed: got %v, want ErrTaken", err)
	}
	if _, err := nodePort(moved, t.Context(), 30020, false); err != nil {
		t.Error(err)
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.allocator(t, allocation.Options{})
	ctx := t.Context()
	// Two leaks, and a service whose reservations are missing.
	if _, err := a.AllocateIP(ctx, service("gone"), corev1.IPv4Protocol,
		"10.0.0.20", false); err != nil {
		t.Fatal(err)
	}
	if _, err := nodePort(a, ctx, 30100, false); err != nil {
		t.Fatal(err)
	}
	s := service("kept")
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.30", ClusterIPs: []string{"10.0.0.30"},
		Ports: []corev1.ServicePort{{Port: 80, NodePort: 30200}},
	}
	options, err := c.resources.GetRESTOptions(corev1.Resource("services"), s)
	if err != nil {
		t.Fatal(err)
	}
	services, destroy, err := options.Decorator(options.StorageConfig, "/services/specs", nil,
		nil, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer destroy()
	if err := services.Create(ctx, "/services/specs/n/kept", s, nil, 0); err != nil {
		t.Fatal(err)
	}

	leaks, err := a.Repair(ctx, func(allocation.Leaks) allocation.Leaks { return allocation.Leaks{} })
	if err != nil || !leaks.IPs.Equal(sets.New("10.0.0.20")) ||
		!leaks.NodePorts.Equal(sets.New[int32](30100)) {
		t.Fatalf("unexpected leaks %v, %v", leaks, err)
	}
	if leaks, err = a.Repair(ctx, func(l allocation.Leaks) allocation.Leaks {
		return l
	}); err != nil || !leaks.Empty() {
		t.Fatalf("leaks remain: %v, %v", leaks, err)
	}
	for ip, want := range map[string]error{"10.0.0.20": nil, "10.0.0.30": allocation.ErrTaken} {
		if _, err := a.AllocateIP(ctx, service("new"), corev1.IPv4Protocol, ip, false); !errors.Is(err,
			want) {
			t.Errorf("%s: %v, want %v", ip, err, want)
		}
	}
	for port, want := range map[int32]error{30100: nil, 30200: allocation.ErrTaken} {
		if _, err := nodePort(a, ctx, port, true); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", port, err, want)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"10.0.0.0/33", "10.0.0.0/31", "fd00::/63", "10.0.0.0/24,10.1.0.0/24",
	} {
		o, err := allocation.ParseOptions(bad, "")
		if err == nil {
			err = o.Validate()
		}
		if err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
	o, err := allocation.ParseOptions("fd00::/108,10.0.0.0/16", "31000+10")
	if err != nil {
		t.Fatal(err)
	}
	a := newCluster(t).allocator(t, o)
	if a.FirstIP().String() != "fd00::1" || a.Families()[0] != corev1.IPv6Protocol ||
		o.LastNodePort != 31010 {
		t.Errorf("%v, %v, %v", a.FirstIP(), a.Families(), o)
	}
}

func BenchmarkAllocateIP(b *testing.B) {
	a := newCluster(b).allocator(b, allocation.Options{CIDRs: []string{"10.0.0.0/12"}})
	for b.Loop() {
		if _, err := a.AllocateIP(b.Context(), service("s"), corev1.IPv4Protocol, "", false); err != nil {
			b.Fatal(err)
		}
	}
}
