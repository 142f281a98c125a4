package servertest_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kinproc/kinproc/server/servertest"
)

// keeper keeps the functions that it is to call in the end, as testing.T does for parallel tests until their parent ends.
type keeper struct {
	testing.TB
	cleanups []func()
}

func (k *keeper) Cleanup(f func()) { k.cleanups = append(k.cleanups, f) }

// A control plane takes tens of MiB: with a hundred parallel tests those that have ended must not stay.
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
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		runtime.GC()
		select {
		case <-collected:
			return true, nil
		default:
			return false, nil
		}
	})
	if err != nil {
		t.Error("the server is still referred to")
	}
	runtime.KeepAlive(test)
}

var _ servertest.TB = (*keeper)(nil)
