//go:build unix

package embed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kinproc/kinproc/embed"
)

// A member whose directory was removed fails, which ends all calls and watches. So does one whose
// directory was replaced by a copy. The reason is the same if etcd is the first to miss a file.
func TestFailsWithItsDirectory(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(dir, moved string) error{
		"removed": func(dir, _ string) error {
			err := os.RemoveAll(dir)
			for errors.Is(err, syscall.ENOTEMPTY) { // etcd has made a file meanwhile
				err = os.RemoveAll(dir)
			}
			return err
		},
		"replaced": func(dir, moved string) error {
			return errors.Join(os.Rename(dir, moved), os.CopyFS(dir, os.DirFS(moved)))
		},
	} {
		for _, writing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/writing=%t", name, writing), func(t *testing.T) {
				t.Parallel()
				failsWithoutItsDirectory(t, away, writing)
			})
		}
	}
}

func failsWithoutItsDirectory(t *testing.T, away func(dir, moved string) error, writing bool) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	e := start(t, embed.Options{Dir: dir})
	changes := e.Client().Watch(context.Background(), "/", clientv3.WithPrefix(),
		clientv3.WithCreatedNotify())
	<-changes
	must(t, away(dir, filepath.Join(t.TempDir(), "moved")))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if writing { // until etcd saves a snapshot of the log
		for {
			if _, err := e.Client().Put(ctx, "/a", "1"); err != nil {
				break
			}
		}
	}
	select {
	case <-e.Failed():
	case <-ctx.Done():
		t.Fatal("the member did not fail")
	}
	var said *embed.Error
	if err := e.Err(); !errors.As(err, &said) || said.Hint == "" ||
		!strings.Contains(err.Error(), "data directory was removed or moved") {
		t.Errorf("the member failed with %v, want that its directory is gone, and a hint", err)
	}
	if _, err := e.Client().Put(ctx, "/a", "1"); err == nil {
		t.Error("acknowledged a write after the directory was removed")
	}
	for {
		select {
		case _, ok := <-changes:
			if ok {
				continue
			}
		case <-ctx.Done():
			t.Error("the watch did not end")
		}
		break
	}
}
