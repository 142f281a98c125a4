package embed_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kinproc/kinproc/embed"
)

// If childEnv is set, the test binary runs child on the directory that it names. If ephemeralEnv is
// also set, the child's member is ephemeral.
const (
	childEnv     = "KINPROC_EMBED_TEST_DIR"
	ephemeralEnv = "KINPROC_EMBED_TEST_EPHEMERAL"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	if code == 0 && !settled(before) {
		buf := make([]byte, 1<<20)
		fmt.Printf("goroutines left behind:\n%s\n", buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// settled waits until no more goroutines are running than before the tests, since Stop must not
// leave any behind. It reports whether that happened in time.
func settled(before int) bool {
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for runtime.NumGoroutine() > before {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// child writes numbered keys, starting after the last existing one, until it is killed. It prints
// each number once the write is acknowledged. If the member is ephemeral, child first prints its
// directory.
func child(dir string) int {
	ctx := context.Background()
	e, err := embed.Start(ctx, embed.Options{Dir: dir, Ephemeral: os.Getenv(ephemeralEnv) != ""})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if os.Getenv(ephemeralEnv) != "" {
		fmt.Println(e.Dir())
	}
	first := countKeys(ctx, e)
	var wg sync.WaitGroup
	for writer := range writers {
		wg.Go(func() {
			for n := first + writer; ; n += writers {
				if _, err := e.Client().Put(ctx, numberedKey(n), strconv.Itoa(n)); err != nil {
					fmt.Println(err)
					return
				}
				fmt.Println(n)
			}
		})
	}
	wg.Wait()
	return 1
}
