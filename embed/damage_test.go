package embed_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/kinproc/kinproc/embed"
)

const pageSize = 4096

// written returns a data directory that holds some data and is not in use.
func written(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	e := start(t, embed.Options{Dir: dir})
	for n := range 300 {
		put(t, e, numberedKey(n), strings.Repeat("v", 200))
	}
	stop(t, e)
	return dir
}

func database(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

func firstLog(t testing.TB, dir string) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs: %v %v", logs, err)
	}
	return logs[0]
}

// overwrite overwrites n bytes of a file with garbage.
func overwrite(t testing.TB, path string, offset int64, n int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xA5}, n), offset); err != nil {
		t.Fatal(err)
	}
}

func edit(t testing.TB, dir, bucket, key, value string) {
	t.Helper()
	db, err := bbolt.Open(database(dir), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value))
	}); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t testing.TB, dir string)
		want   error
	}{
		"database overwritten": {func(t testing.TB, dir string) {
			overwrite(t, database(dir), 0, 10*pageSize)
		}, embed.ErrCorrupt},
		"database empty": {func(t testing.TB, dir string) {
			must(t, os.Truncate(database(dir), 0))
		}, embed.ErrCorrupt},
		"database cut off": {func(t testing.TB, dir string) {
			must(t, os.Truncate(database(dir), 5*pageSize))
		}, embed.ErrCorrupt},
		"database missing": {func(t testing.TB, dir string) {
			must(t, os.Remove(database(dir)))
		}, embed.ErrCorrupt},
		"log overwritten": {func(t testing.TB, dir string) {
			overwrite(t, firstLog(t, dir), 0, pageSize)
		}, embed.ErrCorrupt},
		"log damaged within": {func(t testing.TB, dir string) {
			overwrite(t, firstLog(t, dir), 3*pageSize, 64)
		}, embed.ErrCorrupt},
		"log cut off": {func(t testing.TB, dir string) {
			must(t, os.Truncate(firstLog(t, dir), 2*pageSize))
		}, embed.ErrCorrupt},
		"log empty": {func(t testing.TB, dir string) {
			must(t, os.Truncate(firstLog(t, dir), 0))
		}, embed.ErrCorrupt},
		"log missing": {func(t testing.TB, dir string) {
			must(t, os.Remove(firstLog(t, dir)))
		}, embed.ErrCorrupt},
		"logs missing": {func(t testing.TB, dir string) {
			must(t, os.RemoveAll(filepath.Dir(firstLog(t, dir))))
		}, embed.ErrCorrupt},
		"log is something else": {func(t testing.TB, dir string) {
			log := firstLog(t, dir)
			must(t, os.Rename(log, filepath.Join(filepath.Dir(log), "holiday.jpg")))
		}, embed.ErrCorrupt},
		"member is a file": {func(t testing.TB, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, "member")))
			must(t, os.WriteFile(filepath.Join(dir, "member"), nil, 0o600))
		}, embed.ErrCorrupt},
		"newer storage": {func(t testing.TB, dir string) {
			edit(t, dir, "meta", "storageVersion", "3.99.0")
		}, embed.ErrNewerVersion},
		"newer cluster": {func(t testing.TB, dir string) {
			edit(t, dir, "cluster", "clusterVersion", "4.0.0")
		}, embed.ErrNewerVersion},
		"no version": {func(t testing.TB, dir string) {
			edit(t, dir, "cluster", "clusterVersion", "pie")
		}, embed.ErrCorrupt},
		"two members": {func(t testing.TB, dir string) {
			edit(t, dir, "members", "00000000000000ff",
				`{"id":255,"peerURLs":["http://other:2380"],"name":"other"}`)
		}, embed.ErrCluster},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := written(t)
			c.change(t, dir)
			e, err := embed.Start(t.Context(), embed.Options{Dir: dir})
			if err == nil {
				stop(t, e)
			}
			wantError(t, err, c.want)
		})
	}
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	var said *embed.Error
	if !errors.Is(err, want) || !errors.As(err, &said) || said.Hint == "" ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want one line that says %q and has a hint", err, want)
	}
}

// Whichever page of the database is damaged, the process survives: either the member starts,
// because the page was free, or Start returns an error.
func TestNoDamagedPageEndsTheProcess(t *testing.T) {
	t.Parallel()
	dir := written(t)
	pages := usedPages(t, dir)
	must(t, os.Truncate(database(dir), int64(pages*pageSize)))
	data, err := os.ReadFile(database(dir))
	must(t, err)
	log, err := os.ReadFile(firstLog(t, dir))
	must(t, err)
	log = append(bytes.TrimRight(log, "\x00"), make([]byte, pageSize)...)
	refused := 0
	for page := range pages {
		for _, n := range []int{16, pageSize} { // only the page header, and the whole page
			damaged := t.TempDir()
			must(t, os.MkdirAll(filepath.Dir(database(damaged)), 0o700))
			must(t, os.WriteFile(database(damaged), data, 0o600))
			must(t, os.Mkdir(filepath.Join(damaged, "member", "wal"), 0o700))
			must(t, os.WriteFile(filepath.Join(damaged, "member", "wal", filepath.Base(firstLog(t, dir))),
				log, 0o600))
			overwrite(t, database(damaged), int64(page*pageSize), n)
			e, err := embed.Start(t.Context(), embed.Options{Dir: damaged})
			if err != nil {
				wantError(t, err, embed.ErrCorrupt)
				refused++
				continue
			}
			put(t, e, "/after", "it")
			stop(t, e)
		}
	}
	if refused == 0 {
		t.Error("no damage was detected")
	}
}

func usedPages(t testing.TB, dir string) int {
	t.Helper()
	db, err := bbolt.Open(database(dir), 0o600, &bbolt.Options{ReadOnly: true})
	must(t, err)
	defer db.Close()
	pages := 0
	must(t, db.View(func(tx *bbolt.Tx) error { pages = int(tx.Size()) / pageSize; return nil }))
	return pages
}

func TestRefusesWhatIsNoDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err := embed.Start(t.Context(), embed.Options{Dir: dir})
		var said *embed.Error
		if !errors.As(err, &said) || said.Hint == "" {
			t.Errorf("%s: %v, want a hint", dir, err)
		}
	}
	if _, err := embed.Start(t.Context(), embed.Options{}); err == nil {
		t.Error("started without a directory")
	}
}

func TestRefusesADirectoryInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := start(t, embed.Options{Dir: dir})
	_, err := embed.Start(t.Context(), embed.Options{Dir: dir})
	wantError(t, err, embed.ErrLocked)
	if !strings.Contains(err.Error(), "this process") {
		t.Errorf("%v does not say who holds the lock", err)
	}
	put(t, e, "/still", "works")
}

// Another program, such as etcd itself, locks the database but not our lock file.
func TestRefusesADatabaseInUse(t *testing.T) {
	t.Parallel()
	dir := written(t)
	db, err := bbolt.Open(database(dir), 0o600, nil)
	must(t, err)
	defer db.Close()
	_, err = embed.Start(t.Context(), embed.Options{Dir: dir})
	wantError(t, err, embed.ErrLocked)
}
