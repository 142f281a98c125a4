package standin

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kinproc/kinproc/server"
)

// Emulated returns the version of Kubernetes that a program in a folder stands in for: the folder's
// name if that is one, otherwise what the environment variable says.
func Emulated(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		folder := filepath.Base(filepath.Dir(path))
		if slices.Contains(server.EmulatedVersions(), folder) {
			return folder
		}
	}
	return os.Getenv(server.KubernetesVariable)
}

// Fill puts a program into a directory under the names of the programs that it stands in for. It
// links the files with the given function, such as [os.Link], and copies the program where that
// fails. Each file appears or is replaced in one step. Files that are not of this program, in any
// version, are an error, and so is a directory that has other files only.
func Fill(dir, program string, link func(from, to string) error) error {
	if err := checkFolder(dir); err != nil {
		return err
	}
	programs := []string{program}
	for _, name := range []string{APIServer, Etcd, Kubectl} {
		path := filepath.Join(dir, name+suffix)
		there, err := holds(path, programs)
		if err == nil && !there {
			err = place(path, programs, link)
		}
		if err != nil {
			return err
		}
		programs = append(programs, path)
	}
	return nil
}

// checkFolder returns an error if a directory is neither empty nor one that Fill has filled.
func checkFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == APIServer+suffix, name == Etcd+suffix, name == Kubectl+suffix,
			strings.HasPrefix(name, unfinished), slices.Contains(server.EmulatedVersions(), name):
			return nil // whose program it is, holds says
		}
	}
	return fmt.Errorf("%s is not empty, and kinproc did not make it: name another directory", dir)
}

// unfinished begins the names of directories in which files are made.
const unfinished = ".new-"

// holds reports whether the file at path is the same as one of the programs, which are all equal.
// It returns an error if the file must not be replaced.
func holds(path string, programs []string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, program := range programs {
		wanted, err := os.Stat(program)
		if err != nil {
			return false, err
		}
		if os.SameFile(info, wanted) {
			return true, nil
		}
	}
	if info.Mode().IsRegular() {
		if same, err := sameContent(path, programs[0]); same || err != nil {
			return same, err
		}
		if found, err := buildinfo.ReadFile(path); err == nil && found.Main.Path == module() {
			return false, nil // another version
		}
	}
	return false, fmt.Errorf(
		"%s is not a file that kinproc made: name another directory, or remove it", path)
}

// module returns the path of the module that this program was built from.
func module() string {
	info, _ := debug.ReadBuildInfo()
	return info.Main.Path
}

func sameContent(one, other string) (bool, error) {
	oneInfo, err := os.Stat(one)
	if err != nil {
		return false, err
	}
	if otherInfo, err := os.Stat(other); err != nil || oneInfo.Size() != otherInfo.Size() {
		return false, err
	}
	a, err := Digest(one)
	if err != nil {
		return false, err
	}
	b, err := Digest(other)
	return bytes.Equal(a, b), err
}

// Digest returns the SHA-256 digest of a file's content.
func Digest(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return nil, err
	}
	return hash.Sum(nil), nil
}

// place puts a program at path, where it replaces what is there. If none of the programs can be
// linked, because it is in another file system or belongs to another user, it is copied.
func place(path string, programs []string, link func(from, to string) error) error {
	temporary, err := os.MkdirTemp(filepath.Dir(path), unfinished+"*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	made := filepath.Join(temporary, filepath.Base(path))
	for _, program := range programs {
		if err = link(program, made); err == nil {
			break
		}
	}
	if err != nil {
		err = copyFile(programs[0], made)
	}
	if err != nil {
		return err
	}
	return os.Rename(made, path)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
