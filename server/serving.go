package server

import (
	"fmt"
	"net"
	"os"
	"slices"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
)

// certificateFiles are the files of a certificate and its key.
type certificateFiles struct{ cert, key string }

// servingFiles returns the files of the serving certificate that the options name. They are empty
// if the control plane uses its own.
func (p *plane) servingFiles() (certificateFiles, error) {
	o := p.options
	if o.TLSCertFile != "" {
		return certificateFiles{o.TLSCertFile, o.TLSPrivateKeyFile}, nil
	}
	if o.CertDir == "" {
		return certificateFiles{}, nil
	}
	bound, ok := p.listener.Addr().(*net.TCPAddr)
	if !ok {
		return certificateFiles{}, o.wrong("CertDir", "cert-dir",
			"a listener on %s has no IP address to certify", p.listener.Addr())
	}
	generated := genericoptions.SecureServingOptions{
		Listener:    p.listener,
		BindAddress: bound.IP,
		ServerCert: genericoptions.GeneratableKeyCert{PairName: "apiserver",
			CertDirectory: o.CertDir},
	}
	address := o.AdvertiseAddress
	if address == "" {
		address = kubernetesservice.AdvertiseAddress(bound.IP).String()
	}
	names := []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost"}
	ips := []net.IP{p.services.allocator.FirstIP().AsSlice()}
	if err := generated.MaybeDefaultWithSelfSignedCerts(address, names, ips); err != nil {
		return certificateFiles{}, o.wrong("CertDir", "cert-dir", "%w", err)
	}
	files := generated.ServerCert.CertKey
	return certificateFiles{files.CertFile, files.KeyFile}, nil
}

// serve completes how the server identifies itself. If the options name a certificate, clients get
// that one. The control plane's own clients ask for the server by a name of its own, and so get the
// certificate that they know.
func (a *access) serve(serving *genericapiserver.SecureServingInfo, o *Options) (err error) {
	if serving.MinTLSVersion, err = cliflag.TLSVersion(o.TLSMinVersion); err != nil {
		return err
	}
	if len(o.TLSCipherSuites) > 0 {
		if serving.CipherSuites, err = cliflag.TLSCipherSuites(o.TLSCipherSuites); err != nil {
			return err
		}
	}
	if a.serving.cert == "" {
		return nil
	}
	own, err := dynamiccertificates.NewStaticSNICertKeyContent("own", a.pki.Serving.Cert,
		a.pki.Serving.Key, a.serverName())
	if err != nil {
		return err
	}
	serving.SNICerts = append(serving.SNICerts, own)
	serving.Cert, err = dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert",
		a.serving.cert, a.serving.key)
	if err != nil && o.TLSCertFile == "" {
		return o.wrong("CertDir", "cert-dir", "%w", err)
	}
	if err != nil {
		return o.wrong("TLSCertFile", "tls-cert-file", "%w", err)
	}
	return nil
}

// serverName returns the name by which the control plane's own clients ask for the server. It is
// empty if all clients get the same certificate.
func (a *access) serverName() string {
	if a.serving.cert == "" {
		return ""
	}
	return genericapiserver.LoopbackClientServerNameOverride
}

// caBundle returns the certificates by which workloads know the server: that of its own authority
// and, if the options name a serving certificate, those in its file.
func (a *access) caBundle() []byte {
	bundle := slices.Clone(a.pki.CA.Cert)
	if a.serving.cert == "" {
		return bundle
	}
	named, err := os.ReadFile(a.serving.cert)
	if err != nil { // the server has just read it
		return bundle
	}
	return fmt.Appendf(bundle, "%s", named)
}
