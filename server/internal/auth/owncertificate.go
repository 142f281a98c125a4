package auth

import (
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// ownCertificate is the control plane's own serving certificate. It is renewed when a third of its
// validity is left. The authority stays the same, so clients notice nothing.
type ownCertificate struct {
	keys    *pki.PKI
	dir     string // where keys are kept, if they are
	options pki.Options
	// name is the name by which clients ask for this certificate, if there is another one.
	name string

	mu   sync.Mutex
	pair pki.Pair
	leaf *x509.Certificate // of the pair
}

var _ dynamiccertificates.SNICertKeyContentProvider = &ownCertificate{}

func newOwnCertificate(
	keys *pki.PKI, dir string, o pki.Options, name string,
) (*ownCertificate, error) {
	c := &ownCertificate{keys: keys, dir: dir, options: o, name: name}
	return c, c.set(keys.Serving)
}

// set makes pair the certificate. The mutex is held, or nobody else knows c yet.
func (c *ownCertificate) set(pair pki.Pair) error {
	loaded, err := pair.TLS()
	if err != nil {
		return err
	}
	c.pair, c.leaf = pair, loaded.Leaf
	return nil
}

// ends returns when the certificate expires.
func (c *ownCertificate) ends() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaf.NotAfter
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider. The server asks
// every minute, so this is where the certificate is renewed.
func (c *ownCertificate) CurrentCertKeyContent() (cert, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(pki.Renewal(c.leaf)) {
		pair, err := c.keys.RenewServing(c.dir, c.options)
		if err == nil {
			err = c.set(pair)
		}
		if err != nil { // the next minute brings another attempt
			utilruntime.HandleError(fmt.Errorf("renew the serving certificate, which ends at %s: %w",
				c.leaf.NotAfter.Format(time.RFC3339), err))
		}
	}
	return c.pair.Cert, c.pair.Key
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *ownCertificate) Name() string { return "serving" }

// SNINames implements dynamiccertificates.SNICertKeyContentProvider.
func (c *ownCertificate) SNINames() []string { return []string{c.name} }

// AddListener implements dynamiccertificates.Notifier. Listeners ask by themselves.
func (c *ownCertificate) AddListener(dynamiccertificates.Listener) {}
