package server

import (
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server/internal/controllers/kubernetesservice"
)

func (o *Options) addTLSFlags(f *pflag.FlagSet) {
	f.StringVar(&o.AdvertiseAddress, "advertise-address", o.AdvertiseAddress,
		"IP address of the endpoint of the service default/kubernetes; if empty, the bind "+
			"address or that of the default route")
	f.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile,
		"serving certificate, followed by its authorities; one of the control plane's own "+
			"authority if empty")
	f.StringVar(&o.TLSPrivateKeyFile, "tls-private-key-file", o.TLSPrivateKeyFile,
		"key of that certificate")
	f.StringVar(&o.CertDir, "cert-dir", o.CertDir,
		"directory with the serving certificate apiserver.crt and its key apiserver.key, "+
			"written if they do not exist; not used with --tls-cert-file")
	f.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion,
		"oldest version of TLS to accept, such as VersionTLS13")
	f.StringSliceVar(&o.TLSCipherSuites, "tls-cipher-suites", o.TLSCipherSuites,
		"cipher suites to accept up to TLS 1.2; Go's default if empty")
}

// validateServing validates the options of the serving certificate.
func (o *Options) validateServing() []error {
	var errs []error
	wrong := func(field, flag, format string, args ...any) {
		errs = append(errs, o.wrong(field, flag, format, args...))
	}
	const together = "a certificate and its key go together: set both or neither"
	if o.TLSCertFile == "" && o.TLSPrivateKeyFile != "" {
		wrong("TLSCertFile", "tls-cert-file", together)
	}
	if o.TLSCertFile != "" && o.TLSPrivateKeyFile == "" {
		wrong("TLSPrivateKeyFile", "tls-private-key-file", together)
	}
	if _, err := cliflag.TLSVersion(o.TLSMinVersion); err != nil {
		wrong("TLSMinVersion", "tls-min-version", "%w", err)
	}
	if _, err := cliflag.TLSCipherSuites(o.TLSCipherSuites); err != nil {
		wrong("TLSCipherSuites", "tls-cipher-suites", "%w", err)
	}
	if o.AdvertiseAddress != "" && net.ParseIP(o.AdvertiseAddress) == nil {
		wrong("AdvertiseAddress", "advertise-address", "%q is not an IP address",
			o.AdvertiseAddress)
	}
	if o.MaxRequestsInFlight < 0 {
		wrong("MaxRequestsInFlight", "max-requests-inflight", "%d is negative",
			o.MaxRequestsInFlight)
	}
	if o.MaxMutatingRequestsInFlight < 0 {
		wrong("MaxMutatingRequestsInFlight", "max-mutating-requests-inflight", "%d is negative",
			o.MaxMutatingRequestsInFlight)
	}
	if !o.DisablePriorityAndFairness && o.MaxRequestsInFlight+o.MaxMutatingRequestsInFlight == 0 {
		wrong("MaxRequestsInFlight", "max-requests-inflight",
			"both limits are 0, so API Priority and Fairness has nothing to divide: raise one, "+
				"or switch it off")
	}
	return errs
}

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
