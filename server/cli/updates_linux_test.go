package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

var updates = flag.Int("updates", 0,
	"how often TestUpdatesLeaveRoom also replaces an object of 1 MB with the default flags")

// The largest that the program may get with the default flags, in MiB.
const (
	databaseLimit = 1024
	memoryLimit   = 1536
)

// TestUpdatesLeaveRoom replaces an object of 1 MB as fast as it can, while others create, update
// and delete small ones. No write may be refused, and neither the database nor the memory may grow
// with the number of writes.
func TestUpdatesLeaveRoom(t *testing.T) {
	t.Parallel()
	t.Run("small", func(t *testing.T) {
		t.Parallel()
		// Twice what fits. It takes some seconds to write that much.
		updateAtFullSpeed(t, 300, 150, memoryLimit, "--quota-backend-bytes="+strconv.Itoa(150<<20))
	})
	if *updates > 0 {
		t.Run("defaults", func(t *testing.T) {
			updateAtFullSpeed(t, *updates, databaseLimit, memoryLimit)
		})
	}
}

// updateAtFullSpeed replaces the object so often. The database and the resident memory of the
// program may reach the limits, in MiB.
func updateAtFullSpeed(t *testing.T, count int, database, memory int64, flags ...string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	p := startProgram(t, dir, flags...)
	maps := p.client().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	began := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	done := make(chan struct{})
	var sizes []size
	group.Go(func() error {
		defer close(done)
		if err := replace(ctx, maps, count, func() { sizes = append(sizes, p.size(dir)) }); err != nil {
			return fmt.Errorf("%w; by then, %v", err, sizes[len(sizes)-1])
		}
		return nil
	})
	var small [2]int
	for n := range small {
		group.Go(func() (err error) {
			small[n], err = churn(ctx, maps, fmt.Sprint("small-", n), done)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	// The first half of the time is for caches to fill.
	first, second := largest(sizes[:len(sizes)/2]), largest(sizes[len(sizes)/2:])
	t.Logf("%d updates of 1 MB and %d of small objects in %v: at most %v in the first half, %v in the "+
		"second", count, small[0]+small[1], time.Since(began).Round(time.Second), first, second)
	if second.database > database || second.memory > memory {
		t.Errorf("it grew beyond %d MiB of database or %d MiB of memory", database, memory)
	}
	// In the short form, caches still fill in the second half.
	if *updates > 0 && (second.database > first.database*5/4 || second.memory > first.memory*5/4) {
		t.Error("it still grew in the second half")
	}
	p.kill()
	// It starts again, with the last that was acknowledged.
	again, err := startProgram(t, dir, flags...).client().CoreV1().ConfigMaps(metav1.NamespaceDefault).
		Get(t.Context(), "large", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := again.Annotations["n"]; n != strconv.Itoa(count-1) {
		t.Errorf("after a restart, the object is number %s of %d", n, count)
	}
}

// replace replaces one object of 1 MB, and calls replaced each time.
func replace(
	ctx context.Context, maps typedcorev1.ConfigMapInterface, count int, replaced func(),
) error {
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
	if _, err := maps.Create(ctx, large, metav1.CreateOptions{}); err != nil {
		return err
	}
	text := strings.Repeat("Q", 1_000_000)
	for n := range count {
		large.Annotations = map[string]string{"n": strconv.Itoa(n)}
		large.Data = map[string]string{"text": text}
		if _, err := maps.Update(ctx, large, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update %d: %w", n, err)
		}
		replaced()
	}
	return nil
}

// churn creates, updates and deletes small objects until done, and returns the number of writes.
func churn(
	ctx context.Context, maps typedcorev1.ConfigMapInterface, name string, done <-chan struct{},
) (writes int, err error) {
	for {
		select {
		case <-done:
			return writes, nil
		default:
		}
		object, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		for n := 0; n < 10 && err == nil; n++ {
			object.Data = map[string]string{"n": strconv.Itoa(n)}
			object, err = maps.Update(ctx, object, metav1.UpdateOptions{})
			writes++
		}
		if err == nil {
			err = maps.Delete(ctx, name, metav1.DeleteOptions{})
		}
		if err != nil {
			return writes, fmt.Errorf("small writes: %w", err)
		}
		writes += 2
	}
}

// size is how large a program is, in MiB.
type size struct{ database, memory int64 }

func (s size) String() string {
	return fmt.Sprintf("%d MiB of database, %d MiB of memory", s.database, s.memory)
}

func largest(sizes []size) (most size) {
	for _, s := range sizes {
		most = size{max(most.database, s.database), max(most.memory, s.memory)}
	}
	return most
}

// size returns the size of the program and of its database.
func (p *program) size(dir string) size {
	var s size
	// Between a defragmentation's two steps, there may be no file.
	if info, err := os.Stat(filepath.Join(dir, "etcd", "member", "snap", "db")); err == nil {
		s.database = info.Size() >> 20
	} else if !errors.Is(err, os.ErrNotExist) {
		p.t.Error(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Error(err)
	}
	_, resident, _ := strings.Cut(string(status), "\nVmRSS:")
	var kib int64
	if _, err := fmt.Sscan(resident, &kib); err != nil {
		p.t.Errorf("the memory of the program: %v", err)
	}
	s.memory = kib >> 10
	return s
}
