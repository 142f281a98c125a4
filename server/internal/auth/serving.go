package auth

import (
	"encoding/pem"
	"net"
	"os"
	"slices"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	certutil "k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"
)

// certificateFiles are the files of a certificate and its key.
type certificateFiles struct{ cert, key string }

// servingFiles returns the files of the serving certificate that the options name. They are empty
// if the control plane uses its own.
func (c *Config) servingFiles() (certificateFiles, error) {
	if c.TLSCertFile != "" {
		return certificateFiles{c.TLSCertFile, c.TLSPrivateKeyFile}, nil
	}
	if c.CertDir == "" {
		return certificateFiles{}, nil
	}
	bound, ok := c.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return certificateFiles{}, c.Names.Wrong("CertDir",
			"a listener on %s has no IP address to certify", c.Listener.Addr())
	}
	generated := genericoptions.SecureServingOptions{
		Listener:    c.Listener,
		BindAddress: bound.IP,
		ServerCert: genericoptions.GeneratableKeyCert{PairName: "apiserver",
			CertDirectory: c.CertDir},
	}
	names := []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost"}
	ips := []net.IP{net.ParseIP(c.ServiceIP)}
	if err := generated.MaybeDefaultWithSelfSignedCerts(c.AdvertiseAddress, names, ips); err != nil {
		return certificateFiles{}, c.Names.Wrong("CertDir", "%w", err)
	}
	files := generated.ServerCert.CertKey
	return certificateFiles{files.CertFile, files.KeyFile}, nil
}

// serve completes how the server identifies itself. If the options name a certificate, clients get
// that one. The control plane's own clients ask for the server by a name of its own, and so get the
// certificate that they know.
func (a *Access) serve(serving *genericapiserver.SecureServingInfo) (err error) {
	c := &a.config
	if serving.MinTLSVersion, err = cliflag.TLSVersion(c.TLSMinVersion); err != nil {
		return err
	}
	if len(c.TLSCipherSuites) > 0 {
		if serving.CipherSuites, err = cliflag.TLSCipherSuites(c.TLSCipherSuites); err != nil {
			return err
		}
	}
	if a.serving.cert == "" {
		return nil
	}
	serving.SNICerts = append(serving.SNICerts, a.own)
	serving.Cert, err = dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert",
		a.serving.cert, a.serving.key)
	if err != nil && c.TLSCertFile == "" {
		return c.Names.Wrong("CertDir", "%w", err)
	}
	if err != nil {
		return c.Names.Wrong("TLSCertFile", "%w", err)
	}
	return nil
}

// ServerName returns the name by which the control plane's own clients ask for the server. It is
// empty if all clients get the same certificate.
func (a *Access) ServerName() string {
	if a.serving.cert == "" {
		return ""
	}
	return genericapiserver.LoopbackClientServerNameOverride
}

// CABundle returns the certificates by which workloads know the server: that of its own authority
// and, if the options name a serving certificate, those in its file. That file may hold the key
// too, which nobody else may see.
func (a *Access) CABundle() []byte {
	bundle := slices.Clone(a.PKI.CA.Cert)
	if a.serving.cert == "" {
		return bundle
	}
	named, err := os.ReadFile(a.serving.cert)
	if err != nil { // the server has just read it
		return bundle
	}
	for block, rest := pem.Decode(named); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == certutil.CertificateBlockType {
			block.Headers = nil
			bundle = append(bundle, pem.EncodeToMemory(block)...)
		}
	}
	return bundle
}
