// Package nethttp serves the kind PortRule with net/http.
package nethttp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Run serves, registered with the control plane of config, until ctx is done.
func Run(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	proxies, err := proxyAuthority(ctx, client)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	cert, pair, err := newCertificate("portrules.default.svc")
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if err := register(ctx, client, l.Addr().(*net.TCPAddr).Port, cert); err != nil {
		return errors.Join(err, l.Close())
	}
	s := &http.Server{
		Handler:           onlyProxy("front-proxy-client", newAPI()),
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientAuth:   tls.VerifyClientCertIfGiven,
			ClientCAs:    proxies,
			MinVersion:   tls.VersionTLS12,
		},
	}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.ServeTLS(l, "", ""); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// proxyAuthority returns the authority of the aggregator's client certificate.
func proxyAuthority(ctx context.Context, client dynamic.Interface) (*x509.CertPool, error) {
	published, err := client.Resource(schema.GroupVersionResource{
		Version: "v1", Resource: "configmaps",
	}).Namespace("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	ca, _, err := unstructured.NestedString(published.Object, "data", "requestheader-client-ca-file")
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("the control plane does not publish its aggregator's authority")
	}
	return pool, nil
}

// onlyProxy rejects requests that do not come from the aggregator, which has authenticated and
// authorized the user.
func onlyProxy(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != name {
			writeStatus(w, http.StatusUnauthorized, "Unauthorized",
				"requests must come through the aggregator")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newCertificate returns a self-signed certificate in PEM, and with its key.
func newCertificate(name string) ([]byte, tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// register applies the Service and the APIService.
func register(ctx context.Context, client dynamic.Interface, port int, caBundle []byte) error {
	options := metav1.ApplyOptions{FieldManager: "portrules", Force: true}
	services := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"})
	if _, err := services.Namespace("default").Apply(ctx, "portrules", &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "portrules"},
			"spec": map[string]any{"type": "ExternalName", "externalName": "localhost"},
		}}, options); err != nil {
		return fmt.Errorf("apply the service: %w", err)
	}
	name := version + "." + group
	_, err := client.Resource(schema.GroupVersionResource{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
	}).Apply(ctx, name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": group, "version": version,
			"groupPriorityMinimum": int64(1000), "versionPriority": int64(100),
			"service": map[string]any{
				"name": "portrules", "namespace": "default", "port": int64(port),
			},
			"caBundle": base64.StdEncoding.EncodeToString(caBundle),
		},
	}}, options)
	return err
}
