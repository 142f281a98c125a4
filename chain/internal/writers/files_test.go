package writers

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/chain/history"
)

// keeping returns a memory that keeps what it notes in dir.
func keeping(t *testing.T, dir string, now int64) *Memory {
	t.Helper()
	m := &Memory{}
	m.Keep(dir, now, false, func(err error) { t.Error(err) })
	t.Cleanup(m.Stop)
	return m
}

// knows fails t unless m knows, or does not know, who wrote the revisions of sum 1.
func knows(t *testing.T, m *Memory, want bool, revisions ...int64) {
	t.Helper()
	for _, revision := range revisions {
		if w, at := m.Of(revision, 1); (w != nil && at != nil) != want {
			t.Errorf("revision %d is by %+v at %v", revision, w, at)
		}
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "writers")
	first := keeping(t, dir, 10)
	first.Note(request("first/1.0"), 11, 1)
	first.Note(request("second/1.0"), 12, 1)
	first.Stop()
	second := keeping(t, dir, 12)
	second.Note(request("third/1.0"), 13, 1)
	second.Stop()
	third := keeping(t, dir, 13)
	knows(t, third, false, 10, 14)
	for revision, agent := range map[int64]string{11: "first/1.0", 12: "second/1.0", 13: "third/1.0"} {
		was, wasAt := first.Of(revision, 1)
		if revision == 13 {
			was, wasAt = second.Of(revision, 1)
		}
		w, at := third.Of(revision, 1)
		if w == nil || *w != *was || !at.Equal(*wasAt) || w.UserAgent != agent || w.User != "jane" {
			t.Errorf("revision %d is by %+v at %v", revision, w, at)
		}
		if w, _ := third.Of(revision, 2); w != nil {
			t.Errorf("another revision %d is by %+v", revision, w)
		}
	}
	info, err := os.Stat(filepath.Join(dir, currentName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// A process that is killed leaves at most the beginning of a frame. The complete frames count, and
// later frames follow them.
func TestTornEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, currentName)
	one := keeping(t, dir, 10)
	one.Note(request("one/1.0"), 11, 1)
	one.Stop()
	whole := len(content(t, path))
	two := keeping(t, dir, 11)
	two.Note(request("two/1.0"), 12, 1)
	two.Stop()
	data := content(t, path)
	for size := whole; size < len(data); size++ {
		dir := t.TempDir()
		path := filepath.Join(dir, currentName)
		torn := append([]byte{}, data[:size]...)
		if err := os.WriteFile(path, append(torn, "garbage"...), 0o600); err != nil {
			t.Fatal(err)
		}
		m := keeping(t, dir, 12)
		m.Note(request("three/1.0"), 13, 1)
		m.Stop()
		m = keeping(t, dir, 13)
		knows(t, m, true, 11, 13)
		knows(t, m, false, 12)
		m.Stop()
	}
}

// Files say nothing of revisions that etcd no longer has: it may be a copy from before them.
func TestRevisionsOfAnotherFuture(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := keeping(t, dir, 10)
	for revision := int64(11); revision <= 20; revision++ {
		m.Note(request("lost/1.0"), revision, 1)
	}
	m.Stop()
	m = keeping(t, dir, 15)
	knows(t, m, true, 11, 15)
	knows(t, m, false, 16, 20)
	m.Note(request("new/1.0"), 17, 1)
	m.Stop()
	m = keeping(t, dir, 30)
	knows(t, m, true, 11, 15, 17)
	knows(t, m, false, 16, 18, 20)
	m.Stop()
	m = keeping(t, t.TempDir(), 30) // a new directory
	knows(t, m, false, 11)
}

func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := keeping(t, dir, 0)
	m.files.max = 100 << 10
	const last = 20_000
	for revision := int64(1); revision <= last; revision++ {
		m.Note(request(fmt.Sprint(revision, strings.Repeat("x", maxText))), revision, 1)
		if revision%1000 == 0 { // so that the file need not keep up
			waitFor(t, func() bool {
				m.files.mu.Lock()
				defer m.files.mu.Unlock()
				return len(m.files.pending) < maxPending/2
			})
		}
	}
	m.Stop()
	for _, name := range []string{currentName, olderName} {
		if size := len(content(t, filepath.Join(dir, name))); size > 100<<10 {
			t.Errorf("%s has %d bytes", name, size)
		}
	}
	m = keeping(t, dir, last)
	m.files.max = 100 << 10
	knows(t, m, true, last, last-100)
	knows(t, m, false, 1)
	if m.bytes > MaxBytes {
		t.Errorf("%d bytes in memory", m.bytes)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestReadOnlyWritesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := keeping(t, dir, 10)
	m.Note(request("one/1.0"), 11, 1)
	m.Stop()
	path := filepath.Join(dir, currentName)
	before := content(t, path)
	m = &Memory{}
	m.Keep(dir, 11, true, func(err error) { t.Error(err) })
	m.Note(request("two/1.0"), 12, 1)
	knows(t, m, true, 11, 12)
	m.Stop()
	if string(content(t, path)) != string(before) {
		t.Error("the file has changed")
	}
	absent := filepath.Join(dir, "absent")
	m = &Memory{}
	m.Keep(absent, 0, true, func(err error) { t.Error(err) })
	m.Note(request("two/1.0"), 12, 1)
	m.Stop()
	if _, err := os.Lstat(absent); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}

// A file that somebody else has written cannot put control characters on a terminal.
func TestAttackControlCharacters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	frame, _ := encode(start{}, []record{
		{1, 1, 1, &history.Writer{User: "jane\x1b[2J"}}, {2, 1, 1, &history.Writer{User: "jane"}},
		{3, 1, 1, &history.Writer{User: "jane", UserAgent: "\u009b2J"}},
	})
	if err := os.WriteFile(filepath.Join(dir, currentName), frame, 0o600); err != nil {
		t.Fatal(err)
	}
	m := keeping(t, dir, 10)
	knows(t, m, true, 2)
	knows(t, m, false, 1, 3)
}

// FuzzDecode looks for files on which the reader fails, or reads more than there is.
func FuzzDecode(f *testing.F) {
	one, _ := encode(start{1, 2}, []record{{3, 4, 5, &history.Writer{User: "jane", Verb: "patch"}}})
	f.Add(one, false)
	f.Add(append(one, one[:10]...), false)
	f.Add(one[headBytes:], true)
	f.Add([]byte{1, 1, 255, 255, 255, 255, 15}, true)
	f.Fuzz(func(t *testing.T, data []byte, inside bool) {
		if inside { // a frame with a right checksum
			_, records, _ := decodeFrame(data)
			if len(records) > len(data) {
				t.Errorf("%d records in %d bytes", len(records), len(data))
			}
			return
		}
		var m Memory
		size := decode(data, func(from start, records []record) {
			m.discardAfter(from.revision)
			m.recall(records, 1<<40)
		})
		if size > int64(len(data)) {
			t.Errorf("%d of %d bytes are whole", size, len(data))
		}
		if again := decode(data[:size], func(start, []record) {}); again != size {
			t.Errorf("%d of %d whole bytes are whole", again, size)
		}
	})
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for t.Context().Err() == nil && !holds() {
		runtime.Gosched()
	}
}
