// Package pki manages the control plane's public key infrastructure: two certificate authorities
// (one for servers and clients, one for the aggregator's front proxy), the certificates they sign,
// and the signing key of service account tokens. [New] creates a PKI in memory. [Ensure] keeps one
// in a directory, where the next start reuses it and renews certificates as needed.
//
//	names := []string{"10.0.0.1", "kinproc.example"}
//	p, err := pki.Ensure(filepath.Join(data, "pki"), pki.Options{Names: names})
//	…
//	alice, err := p.CA.Client("alice", []string{"devs"}, 24*time.Hour)
//
// Keys are ECDSA P-256: creating a whole PKI takes about a millisecond, while a single RSA key
// takes a hundred.
package pki
