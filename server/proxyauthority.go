package server

import (
	"bytes"
	"crypto/x509"
	"fmt"

	certutil "k8s.io/client-go/util/cert"
)

// keepProxiesApart returns an error if an authority that signs the certificates of clients signs those of proxies too, whose names are
// not limited: whoever has a client certificate could then name any user in a request header. kube-apiserver compares the certificates of
// --client-ca-file; here those are compared that kinproc itself makes as well, and by what they sign.
func (a *access) keepProxiesApart() error {
	proxies, err := certutil.ParseCertsPEM(a.proxyCA.CurrentCABundleContent())
	if err != nil {
		return err
	}
	for _, source := range []struct {
		name   string
		bundle []byte
	}{
		{"kinproc itself", a.pki.CA.Cert},
		{"--client-ca-file", a.clientCA.CurrentCABundleContent()},
	} {
		clients, err := certutil.ParseCertsPEM(source.bundle)
		if err != nil {
			return err
		}
		for _, client := range clients {
			for _, proxy := range proxies {
				if vouchesFor(proxy, client) {
					return fmt.Errorf("it vouches for the client certificates of %s (authority %q), so each of them could name any user in a "+
						"request header; give the proxies' common names with --requestheader-allowed-names, or the proxies an authority of their own",
						source.name, client.Subject)
				}
			}
		}
	}
	return nil
}

// vouchesFor reports whether certificates that one authority signed are accepted where another one is trusted: both have the same key, as
// after a renewal, or the trusted one signed the other.
func vouchesFor(trusted, authority *x509.Certificate) bool {
	return bytes.Equal(trusted.RawSubjectPublicKeyInfo, authority.RawSubjectPublicKeyInfo) || authority.CheckSignatureFrom(trusted) == nil
}
