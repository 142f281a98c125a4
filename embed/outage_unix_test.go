//go:build unix

package embed_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/embed"
)

// A member whose directory is gone fails, which ends calls and watches.
func TestFailsWithItsDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	e := start(t, embed.Options{Dir: dir})
	changes := e.Client().Watch(context.Background(), "/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-changes
	must(t, os.RemoveAll(dir))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case <-e.Failed():
	case <-ctx.Done():
		t.Fatal("it did not notice")
	}
	var said *embed.Error
	if err := e.Err(); !errors.As(err, &said) || said.Hint == "" {
		t.Errorf("it failed with %v, want a hint", err)
	}
	if _, err := e.Client().Put(ctx, "/a", "1"); err == nil {
		t.Error("acknowledged a write into nowhere")
	}
	for {
		select {
		case _, ok := <-changes:
			if ok {
				continue
			}
		case <-ctx.Done():
			t.Error("the watch goes on")
		}
		break
	}
}
