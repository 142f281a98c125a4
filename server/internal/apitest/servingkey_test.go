package apitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestServingKeyIsNotPublished starts a control plane whose serving certificate and key are in one
// file, and looks at what everybody may read of it.
func TestServingKeyIsNotPublished(t *testing.T) {
	t.Parallel()
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "serving.pem")
	if err := os.WriteFile(file, append(key, cert...), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Run(t, func(o *server.Options) {
		o.TLSCertFile, o.TLSPrivateKeyFile = file, file
	})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	var roots, bundle string
	eventually(t, "the certificates are published", func() error {
		config, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kube-root-ca.crt",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		bundles, err := client.CertificatesV1().ClusterTrustBundles().List(t.Context(),
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		if n := len(bundles.Items); n != 1 {
			return fmt.Errorf("%d ClusterTrustBundles instead of 1", n)
		}
		roots, bundle = config.Data["ca.crt"], bundles.Items[0].Spec.TrustBundle
		return nil
	})
	for what, text := range map[string]string{"config map": roots, "bundle": bundle} {
		if strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("the %s has the key:\n%s", what, text)
		}
	}
	if !strings.Contains(roots, strings.TrimSpace(string(cert))) {
		t.Errorf("the config map does not have the certificate:\n%s", roots)
	}
}
