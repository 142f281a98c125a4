package origin

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kinproc/kinproc/server/cli/internal/private"
)

// Authentic is the content of a file that tells kinproc what to do, with a MAC that is made with
// the key of the user on this machine. Git does not ask before it overwrites ignored files, so a
// repository can put its own file into a directory that the user has made.
type Authentic struct {
	MAC string `json:"mac"`
	// One of these is set, depending on the file.
	Settings json.RawMessage `json:"settings,omitempty"`
	Running  json.RawMessage `json:"running,omitempty"`
}

// Purpose is what a text with a MAC is for, so that the content of one file does not count in
// another one.
type Purpose string

// The purposes.
const (
	Settings Purpose = "settings"
	Running  Purpose = "running"
	Cluster  Purpose = "cluster" // of the kubeconfig
)

// ErrNotOwn says that a text has no MAC of this user on this machine.
var ErrNotOwn = errors.New("they were not written by you with kinproc on this machine")

// macOf returns the MAC of a text in JSON. It includes the mark of the folder, so that the files of
// another one do not count.
func macOf(
	dir *private.Dir, folder string, key []byte, purpose Purpose, text []byte,
) ([]byte, error) {
	mark, err := dir.Read(filepath.Join(folder, Name))
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "kinproc %s %s\n", purpose, strings.TrimSpace(string(mark)))
	mac.Write(compact.Bytes())
	return mac.Sum(nil), nil
}

// Sign returns the MAC of a text in JSON for a file in a folder, whose path is relative to the
// directory. It is empty if there is no key or if the folder does not bear the user's mark, because
// then nobody could check it.
func Sign(dir *private.Dir, folder string, purpose Purpose, text []byte) string {
	key, err := userKey()
	if err != nil || !isMarked(dir, folder, key) {
		return ""
	}
	mac, err := macOf(dir, folder, key, purpose, text)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(mac)
}

// Verify returns ErrNotOwn unless a MAC is that of a text, or ErrNoKey if nothing can have a MAC.
func Verify(dir *private.Dir, folder string, purpose Purpose, text []byte, mac string) error {
	key, err := userKey()
	if err != nil {
		return err
	}
	if !isMarked(dir, folder, key) {
		return ErrNotOwn
	}
	want, err := macOf(dir, folder, key, purpose, text)
	given, decodeErr := hex.DecodeString(mac)
	if err != nil || decodeErr != nil || !hmac.Equal(want, given) {
		return ErrNotOwn
	}
	return nil
}
