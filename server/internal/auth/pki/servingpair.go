package pki

import (
	"fmt"
	"os"
	"time"
)

// ServingOptions configures [EnsureServing].
type ServingOptions struct {
	// Dir is a directory with the authority in ca.crt and ca.key, and the certificate in tls.crt
	// and tls.key. What is missing is created. If it is empty, nothing is stored.
	Dir string
	// Authority is the common name of a new authority.
	Authority string
	// Names are the DNS names and IP addresses of the server.
	Names []string
	// Validity is how long a new certificate is valid; it defaults to [Validity].
	Validity time.Duration
	// Now is the clock.
	Now func() time.Time
}

// EnsureServing returns a serving certificate and the authority that signed it, for a server that
// has an authority of its own. Old must be the previous result, if there is one: without a
// directory, its authority signs the new certificate. A stored certificate is reissued under the
// same conditions as by [Ensure].
func EnsureServing(o ServingOptions, old *Authority) (*Authority, Pair, error) {
	authority := old
	var err error
	switch {
	case o.Dir != "":
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, Pair{}, fmt.Errorf("create the directory for certificates: %w", err)
		}
		authority, err = directory{o.Dir, true}.authority("ca", o.Authority, o.Now)
	case old == nil || expiring(old.cert, o.Now()):
		authority, err = newAuthority(o.Authority, nil, o.Now)
	}
	if err != nil {
		return nil, Pair{}, err
	}
	l := leaf{file: "tls", authority: authority, names: o.Names, validity: o.Validity}
	var pair Pair
	if o.Dir != "" {
		pair, err = directory{o.Dir, true}.leaf(l)
	} else {
		pair, err = l.issue()
	}
	return authority, pair, err
}
