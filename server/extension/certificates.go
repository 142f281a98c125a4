package extension

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

const (
	// servingValidity is how long a serving certificate is valid. It is renewed when a third of
	// that is left. The authority stays the same, so registrations stay valid.
	servingValidity = 90 * 24 * time.Hour
	// mostBetweenChecks is the longest time between two looks at the certificate. Timers do not
	// count the time that a machine sleeps.
	mostBetweenChecks = time.Hour

	minTLSVersion = tls.VersionTLS12
)

// certificates holds the serving certificate and renews it.
type certificates struct {
	options pki.ServingOptions

	mu        sync.Mutex
	authority *pki.Authority
	pair      pki.Pair
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = &certificates{}

// newCertificates returns certificates in a directory, or in memory if dir is empty.
func newCertificates(dir string, names []string, validity time.Duration) (*certificates, error) {
	if validity == 0 {
		validity = servingValidity
	}
	c := &certificates{options: pki.ServingOptions{
		Dir: dir, Authority: names[0] + "-ca", Names: names, Validity: validity, Now: time.Now,
	}}
	return c, c.ensure()
}

// ensure issues the certificate if there is none or if it expires soon.
func (c *certificates) ensure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	authority, pair, err := pki.EnsureServing(c.options, c.authority)
	if err != nil {
		return err
	}
	c.authority, c.pair = authority, pair
	for _, l := range c.listeners {
		l.Enqueue()
	}
	return nil
}

// renewal returns when the certificate is to be renewed.
func (c *certificates) renewal() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	loaded, err := c.pair.TLS()
	if err != nil {
		return time.Now()
	}
	return pki.Renewal(loaded.Leaf)
}

// run renews the certificate until ctx is done.
func (c *certificates) run(ctx context.Context, log logr.Logger) {
	wait := time.Duration(0)
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = max(min(time.Until(c.renewal()), mostBetweenChecks), 0)
		if wait > 0 {
			continue
		}
		if err := c.ensure(); err != nil {
			log.Error(err, "renew the serving certificate")
			wait = time.Minute
		}
	}
}

// CABundle returns the certificate of the authority.
func (c *certificates) CABundle() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.authority.Cert
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *certificates) Name() string { return "serving-certificate" }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *certificates) CurrentCertKeyContent() (cert, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pair.Cert, c.pair.Key
}

// AddListener implements dynamiccertificates.Notifier.
func (c *certificates) AddListener(l dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, l)
}

// newToken returns the token with which the server calls itself.
func newToken() string { return uuid.NewString() }
