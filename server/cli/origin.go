package cli

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
	"slices"
	"strings"

	"github.com/kinproc/kinproc/server/internal/datadir"
)

const (
	// originName is the file of a data directory that tells who made the directory: a random number,
	// with a MAC under the key of a user on a machine.
	originName = "origin"
	// originKeyName is the file of that key, in the user's configuration directory.
	originKeyName = "origin.key"
	originKeySize = 32
)

// checkOrigin refuses a data directory with data or keys that this user has not made on this
// machine. Such a directory may have come with a cloned repository or an archive: its files
// belong to the caller, but somebody else has chosen the objects and knows the keys. It marks a
// new directory as the caller's before there is anything in it, and one that the caller adopts.
// If the start fails before the control plane is ready, undo removes a directory that did not
// exist before; it takes the folder that the start holds by then, or nil.
func (o *startOptions) checkOrigin() (undo func(held *folder), err error) {
	nothing := func(*folder) {}
	dir := o.server.DataDir
	if dir == "" {
		return nothing, nil
	}
	_, err = os.Lstat(dir)
	absent := errors.Is(err, fs.ErrNotExist)
	key, err := originKey()
	switch marked, used := originOf(dir, key); {
	case used && !marked && !o.adopt && err != nil:
		return nil, fmt.Errorf("--data-dir: cannot tell whether you made %s: %w; "+
			"if you trust whoever made it, start with --adopt", dir, err)
	case used && !marked && !o.adopt:
		return nil, fmt.Errorf("--data-dir: %s was not made by you on this machine: whoever made it has "+
			"chosen its objects and may know its keys; remove it, or start with --adopt if you trust them",
			dir)
	case marked || err != nil:
		return nothing, nil
	case !used && !isNew(dir):
		return nothing, nil // the server says why it is unsuitable
	}
	private, err := openPrivate(dir, os.Geteuid())
	if err != nil {
		return nothing, nil // so does it here
	}
	defer private.close()
	if err := writeOrigin(private, key); err != nil {
		return nil, fmt.Errorf("--data-dir: mark %s: %w; "+
			"name a directory that you can create or write to", dir, err)
	}
	if !absent {
		return nothing, nil
	}
	return func(held *folder) { _, _ = removeData(dir, held) }, nil // unless another start uses it
}

// isNew reports whether a directory has nothing in it but what kinproc writes before data and keys.
// It creates the directory if there is none.
func isNew(dir string) bool {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false
	}
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() != datadir.IgnoreFile && e.Name() != ephemeralName && e.Name() != originName
	})
}

// originOf reports whether a directory is marked with a key, and whether it has data or keys of a
// control plane. If it is unsuitable, the server says so.
func originOf(dir string, key []byte) (marked, used bool) {
	private, err := openPrivate(dir, os.Geteuid())
	if err != nil {
		return false, false
	}
	defer private.close()
	for _, name := range []string{"pki", filepath.Join("etcd", "member")} {
		if _, err := private.root.Lstat(name); err == nil {
			used = true
		}
	}
	return key != nil && isOrigin(private, ".", key), used
}

// isOrigin reports whether the mark of a folder, whose path is relative to a directory, was made
// with a key.
func isOrigin(dir *privateDir, folder string, key []byte) bool {
	data, err := dir.read(filepath.Join(folder, originName))
	number, mac, ok := strings.Cut(strings.TrimSpace(string(data)), " ")
	if err != nil || !ok {
		return false
	}
	given, err := hex.DecodeString(mac)
	return err == nil && hmac.Equal(given, originMAC(key, number))
}

// markFolder marks the folder of an ephemeral control plane, so that its record can have a MAC.
func markFolder(path string) error {
	key, err := originKey()
	if err != nil {
		return nil // then nobody looks for a MAC
	}
	private, err := openPrivate(path, os.Geteuid())
	if err != nil {
		return err
	}
	defer private.close()
	return writeOrigin(private, key)
}

func writeOrigin(dir *privateDir, key []byte) error {
	number := rand.Text()
	mark := number + " " + hex.EncodeToString(originMAC(key, number)) + "\n"
	if err := dir.root.Remove(originName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return dir.root.WriteFile(originName, []byte(mark), 0o600)
}

func originMAC(key []byte, number string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("kinproc data directory " + number))
	return mac.Sum(nil)
}

// originKey returns the key of this user on this machine, which it makes if there is none.
func originKey() ([]byte, error) {
	parent, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(parent, "kinproc")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	private, err := openPrivate(dir, os.Geteuid())
	if err != nil {
		return nil, err
	}
	defer private.close()
	key, err := private.read(originKeyName)
	if errors.Is(err, fs.ErrNotExist) {
		// The home directory may be a repository.
		if err = errors.Join(datadir.KeepOutOfGit(dir), makeOriginKey(private)); err == nil {
			key, err = private.read(originKeyName)
		}
	}
	if err == nil && len(key) != originKeySize {
		err = fmt.Errorf("%s is damaged: remove it", filepath.Join(dir, originKeyName))
	}
	return key, err
}

// makeOriginKey makes the key appear in one step. If another process has been faster, its key
// stays.
func makeOriginKey(dir *privateDir) error {
	key := make([]byte, originKeySize)
	rand.Read(key)
	temporary := "." + originKeyName + "-" + rand.Text()
	defer dir.root.Remove(temporary)
	if err := dir.root.WriteFile(temporary, key, 0o600); err != nil {
		return err
	}
	if err := dir.root.Link(temporary, originKeyName); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
