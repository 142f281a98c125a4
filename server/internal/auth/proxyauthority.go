package auth

import (
	"bytes"
	"crypto/x509"
	"fmt"

	certutil "k8s.io/client-go/util/cert"
)

// keepProxiesApart returns an error if one authority signs the certificates of both clients and
// proxies and the names of the proxies are not limited: anyone with a client certificate could then
// name any user in a request header. kube-apiserver compares the certificates of --client-ca-file.
// keepProxiesApart also compares kinproc's own authority, and checks which authority signed which.
func (a *Access) keepProxiesApart() error {
	c := &a.config
	proxies, err := certutil.ParseCertsPEM(a.proxyCA.CurrentCABundleContent())
	if err != nil {
		return err
	}
	for _, source := range []struct {
		name   string
		bundle []byte
	}{
		{"kinproc itself", a.PKI.CA.Cert},
		{c.Names.Of("ClientCAFile"), a.ClientCA.CurrentCABundleContent()},
	} {
		clients, err := certutil.ParseCertsPEM(source.bundle)
		if err != nil {
			return err
		}
		for _, client := range clients {
			for _, proxy := range proxies {
				if vouchesFor(proxy, client) {
					return fmt.Errorf("it vouches for the client certificates of %s (authority %q), "+
						"so each of them could name any user in a "+
						"request header; list the proxies' common names in %s, "+
						"or use a separate authority for the proxies", source.name, client.Subject,
						c.Names.Of("RequestHeader.AllowedNames"))
				}
			}
		}
	}
	return nil
}

// vouchesFor reports whether certificates that authority signed are accepted wherever trusted is
// trusted. That is so if both have the same key, as after a renewal, or if trusted signed
// authority.
func vouchesFor(trusted, authority *x509.Certificate) bool {
	return bytes.Equal(trusted.RawSubjectPublicKeyInfo, authority.RawSubjectPublicKeyInfo) ||
		authority.CheckSignatureFrom(trusted) == nil
}
