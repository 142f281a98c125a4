package servertest_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kinproc/kinproc/server/servertest"
)

// keeper keeps its cleanup functions, as testing.T does for parallel tests until their parent ends.
type keeper struct {
	testing.TB
	cleanups []func()
}

func (k *keeper) Cleanup(f func()) { k.cleanups = append(k.cleanups, f) }

// A control plane takes tens of MiB, so with a hundred parallel tests, the stopped ones must not
// stay in memory.
func TestStoppedServerIsCollected(t *testing.T) {
	t.Parallel()
	test := &keeper{TB: t}
	collected := make(chan struct{})
	func() {
		s := servertest.Run(test)
		runtime.AddCleanup(s, func(c chan struct{}) { close(c) }, collected)
	}()
	for _, f := range test.cleanups {
		f()
	}
	// Collections take long beside tests with much memory.
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 3*time.Minute, true,
		func(context.Context) (bool, error) {
			runtime.GC()
			select {
			case <-collected:
				return true, nil
			default:
				return false, nil
			}
		})
	if err != nil {
		t.Error("the stopped server was not garbage-collected")
	}
	runtime.KeepAlive(test)
}

var _ servertest.TB = (*keeper)(nil)
