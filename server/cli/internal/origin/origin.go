// Package origin tells whether the user has made a directory on this machine, and has written what
// is in a file there. Directories and files of somebody else may have come with a cloned repository
// or an archive: they belong to the caller then, but somebody else knows the keys and has chosen
// the content.
package origin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kinproc/kinproc/server/cli/internal/private"
	"github.com/kinproc/kinproc/server/internal/datadir"
)

const (
	// Name is the file of a data directory that tells who made the directory: a random number, with
	// a MAC under the key of a user on a machine.
	Name = "origin"
	// keyName is the file of that key, in the user's configuration directory.
	keyName = "origin.key"
	keySize = 32
)

// ErrNoKey says that there is no key of the user on this machine, so that nobody can tell who made
// a directory or wrote a file.
var ErrNoKey = errors.New("there is no key of yours on this machine")

// Of is like Marked and Used for a path. A directory that is unsuitable is neither: the server says
// why.
func Of(dir string) (marked, used bool, err error) {
	d, unsuitable := private.Open(dir)
	if unsuitable != nil {
		return false, false, CheckKey()
	}
	defer d.Close()
	marked, err = Marked(d)
	return marked, Used(d), err
}

// Marked reports whether a directory bears the user's mark. The error is ErrNoKey.
func Marked(dir *private.Dir) (bool, error) {
	key, err := userKey()
	return err == nil && isMarked(dir, ".", key), err
}

// Used reports whether a directory has data or keys of a control plane.
func Used(dir *private.Dir) bool { return dir.Has("pki", filepath.Join("etcd", "member")) }

// CheckKey returns ErrNoKey if there is no key and none can be made.
func CheckKey() error {
	_, err := userKey()
	return err
}

// Mark marks a directory as the user's. Without a key it does nothing, because then nobody looks
// for the mark.
func Mark(dir *private.Dir) error {
	key, err := userKey()
	if err != nil {
		return nil
	}
	number := rand.Text()
	mark := number + " " + hex.EncodeToString(macOfMark(key, number)) + "\n"
	if err := dir.Root.Remove(Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return dir.Root.WriteFile(Name, []byte(mark), 0o600)
}

// isMarked reports whether the mark of a folder, whose path is relative to a directory, was made
// with a key.
func isMarked(dir *private.Dir, folder string, key []byte) bool {
	data, err := dir.Read(filepath.Join(folder, Name))
	number, mac, ok := strings.Cut(strings.TrimSpace(string(data)), " ")
	if err != nil || !ok {
		return false
	}
	given, err := hex.DecodeString(mac)
	return err == nil && hmac.Equal(given, macOfMark(key, number))
}

func macOfMark(key []byte, number string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("kinproc data directory " + number))
	return mac.Sum(nil)
}

// userKey returns the key of this user on this machine, which it makes if there is none. The error
// is ErrNoKey.
func userKey() ([]byte, error) {
	key, err := readKey()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	return key, nil
}

func readKey() ([]byte, error) {
	parent, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(parent, "kinproc")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d, err := private.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	key, err := d.Read(keyName)
	if errors.Is(err, fs.ErrNotExist) {
		// The home directory may be a repository.
		if err = errors.Join(datadir.KeepOutOfGit(dir), makeKey(d)); err == nil {
			key, err = d.Read(keyName)
		}
	}
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s is damaged: remove it", filepath.Join(dir, keyName))
	}
	return key, err
}

// makeKey makes the key appear in one step. If another process has been faster, its key stays.
func makeKey(dir *private.Dir) error {
	key := make([]byte, keySize)
	rand.Read(key)
	temporary := "." + keyName + "-" + rand.Text()
	defer dir.Root.Remove(temporary)
	if err := dir.Root.WriteFile(temporary, key, 0o600); err != nil {
		return err
	}
	if err := dir.Root.Link(temporary, keyName); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
