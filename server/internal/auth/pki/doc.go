// Package pki is the control plane's public key infrastructure: two certificate authorities (for servers and clients, and for the
// aggregator's front proxy), the certificates they sign, and the key of service account tokens. [New] makes one in memory, [Ensure] one
// that lives in a directory and is reused, and renewed where needed, by the next start.
//
//	p, err := pki.Ensure(filepath.Join(data, "pki"), pki.Options{Names: []string{"10.0.0.1", "kinproc.example"}})
//	…
//	alice, err := p.CA.Client("alice", []string{"devs"}, 24*time.Hour)
//
// Keys are ECDSA P-256: all of it is made in about a millisecond, where a single RSA key takes a hundred.
package pki
