package cli

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
)

// authentic is the content of a file that tells kinproc what to do, with a MAC that is made with
// the key of the user on this machine. Git does not ask before it overwrites ignored files, so a
// repository can put its own file into a directory that the user has made.
type authentic struct {
	MAC string `json:"mac"`
	// One of these is set, depending on the file.
	Settings json.RawMessage `json:"settings,omitempty"`
	Running  json.RawMessage `json:"running,omitempty"`
}

// The purposes of a MAC, so that the content of one file does not count in another one.
const (
	forSettings = "settings"
	forRunning  = "running"
	forCluster  = "cluster" // of the kubeconfig
)

var errNotOwn = errors.New("you have not written them with kinproc on this machine")

// macOf returns the MAC of a text in JSON. It includes the mark of the folder, so that the files of
// another one do not count.
func macOf(
	dir *privateDir, folder string, key []byte, purpose string, text []byte,
) ([]byte, error) {
	mark, err := dir.read(filepath.Join(folder, originName))
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

// sign returns the MAC of a text for a file. It is empty if there is no key or if the folder does
// not bear the user's mark, because then nobody could check it.
func sign(dir *privateDir, folder, purpose string, text []byte) string {
	key, err := originKey()
	if err != nil || !isOrigin(dir, folder, key) {
		return ""
	}
	mac, err := macOf(dir, folder, key, purpose, text)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(mac)
}

// verify returns an error unless a MAC is that of a text.
func verify(
	dir *privateDir, folder string, key []byte, purpose string, text []byte, mac string,
) error {
	if len(key) == 0 || !isOrigin(dir, folder, key) {
		return errNotOwn
	}
	want, err := macOf(dir, folder, key, purpose, text)
	given, decodeErr := hex.DecodeString(mac)
	if err != nil || decodeErr != nil || !hmac.Equal(want, given) {
		return errNotOwn
	}
	return nil
}
