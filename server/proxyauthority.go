package server

import (
	"bytes"
	"crypto/x509"
	"fmt"

	certutil "k8s.io/client-go/util/cert"
)

// keepProxiesApart returns an error if one authority signs the certificates of clients and those of
// proxies, and the names of the proxies are not limited: whoever has a client certificate could then
// name any user in a request header. kube-apiserver compares the certificates of --client-ca-file.
// keepProxiesApart compares kinproc's own authority too, and looks at what each authority has signed.
func (a *access) keepProxiesApart(o *Options) error {
	proxies, err := certutil.ParseCertsPEM(a.proxyCA.CurrentCABundleContent())
	if err != nil {
		return err
	}
	for _, source := range []struct {
		name   string
		bundle []byte
	}{
		{"kinproc itself", a.pki.CA.Cert},
		{o.name("ClientCAFile", "client-ca-file"), a.clientCA.CurrentCABundleContent()},
	} {
		clients, err := certutil.ParseCertsPEM(source.bundle)
		if err != nil {
			return err
		}
		for _, client := range clients {
			for _, proxy := range proxies {
				if vouchesFor(proxy, client) {
					return fmt.Errorf("it vouches for the client certificates of %s (authority %q), so each of them could name any user in a "+
						"request header; list the proxies' common names in %s, or give the proxies an authority of their own",
						source.name, client.Subject, o.name("RequestHeader.AllowedNames", "requestheader-allowed-names"))
				}
			}
		}
	}
	return nil
}

// vouchesFor reports whether certificates that authority signed are accepted where trusted is trusted:
// both have the same key, as after a renewal, or trusted has signed authority.
func vouchesFor(trusted, authority *x509.Certificate) bool {
	return bytes.Equal(trusted.RawSubjectPublicKeyInfo, authority.RawSubjectPublicKeyInfo) || authority.CheckSignatureFrom(trusted) == nil
}
