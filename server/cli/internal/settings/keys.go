package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"

	"github.com/kinproc/kinproc/server/cli/internal/private"
)

// lastingKeys are the files of the private keys that a start makes once and never replaces: whoever
// has one of them can be any user. The certificates and the other keys depend on them.
var lastingKeys = [...]string{
	"pki/ca.key", "pki/front-proxy-ca.key", "pki/sa.key", "pki/etcd/ca.key",
}

// hashKeys returns the hashes of the lasting keys in a data directory.
func hashKeys(dir string) map[string]string {
	found := map[string]string{}
	d, err := private.Open(dir)
	if err != nil {
		return found
	}
	defer d.Close()
	for _, name := range lastingKeys {
		data, err := d.Read(filepath.FromSlash(name))
		if err != nil {
			continue
		}
		if _, err := keyutil.ParsePrivateKeyPEM(data); err != nil {
			continue // the server says what is wrong with it
		}
		sum := sha256.Sum256(data)
		found[name] = hex.EncodeToString(sum[:])
	}
	return found
}

// CheckKeys refuses keys in a data directory that are not those of the last start. The mark of the
// directory says who made it, but git does not ask before it overwrites files that it ignores, so a
// repository may have put keys there that others know. Keys that the user has removed are forgotten
// at once, since the start may be killed after it has made new ones.
func (m *Memory) CheckKeys(dir string) error {
	if len(m.Keys) == 0 {
		return nil
	}
	now, kept := hashKeys(dir), maps.Clone(m.Keys)
	for name, hash := range m.Keys {
		switch now[name] {
		case hash:
		case "":
			delete(kept, name)
		default:
			return fmt.Errorf("--data-dir: %s is not the key of the last start, so somebody else may "+
				"know it; put the old one back, remove the directory pki to get new keys, or start with "+
				"--adopt",
				filepath.Join(dir, filepath.FromSlash(name)))
		}
	}
	if len(kept) == len(m.Keys) {
		return nil
	}
	m.Keys = kept
	if err := m.write(dir); err != nil {
		return fmt.Errorf("remember the settings in %s: %w", dir, err)
	}
	return nil
}
