package standin_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/server/cli/internal/standin"
)

// programs are the files of a folder, without the suffix that they have on Windows.
var programs = []string{"kube-apiserver", "etcd", "kubectl"}

// self returns the path of this test binary, and its content.
func self(t *testing.T) (path string, content []byte) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// find returns the path of a program in a folder.
func find(t *testing.T, dir, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, name+"*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v %v", name, dir, found, err)
	}
	return found[0]
}

// mustHold checks that a folder has the programs and nothing else, and that all are one file.
func mustHold(t *testing.T, dir string, content []byte) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(programs) {
		t.Fatalf("%v %v", entries, err)
	}
	first, err := os.Stat(find(t, dir, programs[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		path := find(t, dir, name)
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s differs: %v", path, err)
		}
		info, err := os.Stat(path)
		if err != nil || !os.SameFile(info, first) {
			t.Errorf("%s is another file: %v", path, err)
		}
		if info.Mode().Perm()&0o100 == 0 && filepath.Ext(path) == "" {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
}

func TestFillLinks(t *testing.T) {
	t.Parallel()
	program, content := self(t)
	dir := t.TempDir()
	original := filepath.Join(dir, "kinproc")
	if err := os.WriteFile(original, content, 0o700); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := standin.Fill(folder, original, os.Link); err != nil {
			t.Fatal(err)
		}
		mustHold(t, folder, content)
	}
	before, _ := os.Stat(find(t, folder, "etcd"))
	// The same program at another place, such as a temporary one of go run, changes nothing.
	if err := standin.Fill(folder, program, os.Link); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(find(t, folder, "etcd")); err != nil || !os.SameFile(before, after) {
		t.Errorf("etcd was replaced: %v", err)
	}
}

// A program in another file system, or of another user, is copied once. An older one is replaced.
func TestFillCopies(t *testing.T) {
	t.Parallel()
	program, content := self(t)
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, append(bytes.Clone(content), 0), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := standin.Fill(dir, other, os.Link); err != nil {
		t.Fatal(err)
	}
	elsewhere := func(from, to string) error {
		if from == program {
			return errors.New("cross-device link")
		}
		return os.Link(from, to)
	}
	if err := standin.Fill(dir, program, elsewhere); err != nil {
		t.Fatal(err)
	}
	mustHold(t, dir, content)
}

func TestFillRefusesOtherPrograms(t *testing.T) {
	t.Parallel()
	program, _ := self(t)
	dir := t.TempDir()
	if err := standin.Fill(dir, program, os.Link); err != nil {
		t.Fatal(err)
	}
	path := find(t, dir, "kubectl")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := standin.Fill(dir, program, os.Link)
	if err == nil || !strings.HasPrefix(err.Error(), path+" is not a file that kinproc made") {
		t.Error(err)
	}
	if kept, err := os.ReadFile(path); err != nil || string(kept) != "#!/bin/sh\n" {
		t.Errorf("%q %v", kept, err)
	}
}
