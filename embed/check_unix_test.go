//go:build unix

package embed_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kinproc/kinproc/embed"
)

// Files that would block on open or read are rejected without opening them.
func TestRefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	pipe := func(t testing.TB, path string) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		must(t, syscall.Mkfifo(path, 0o600))
	}
	for name, change := range map[string]func(t testing.TB, dir string){
		"database": func(t testing.TB, dir string) { pipe(t, database(dir)) },
		"log":      func(t testing.TB, dir string) { pipe(t, firstLog(t, dir)) },
		"snapshot": func(t testing.TB, dir string) {
			pipe(t, filepath.Join(dir, "member", "snap", "1-1.snap"))
		},
		"member": func(t testing.TB, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, "member")))
			pipe(t, filepath.Join(dir, "member"))
		},
		"lock": func(t testing.TB, dir string) { pipe(t, filepath.Join(dir, "lock")) },
		"touch": func(t testing.TB, dir string) {
			pipe(t, filepath.Join(dir, "member", "wal", ".touch"))
		},
		"device": func(t testing.TB, dir string) {
			must(t, os.Remove(database(dir)))
			must(t, os.Symlink(os.DevNull, database(dir)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := written(t)
			change(t, dir)
			refused := make(chan error, 1)
			go func() {
				e, err := embed.Start(t.Context(), embed.Options{Dir: dir})
				if err == nil {
					stop(t, e)
				}
				refused <- err
			}()
			select {
			case err := <-refused:
				wantError(t, err, embed.ErrCorrupt)
			case <-time.After(time.Minute):
				t.Fatal("Start hangs")
			}
		})
	}
}
