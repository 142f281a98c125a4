// Package trustbundles publishes the certificates that verify the API server as a
// ClusterTrustBundle, which pods may mount.
package trustbundles

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the loop in kube-controller-manager.
	Name = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
	// Signer is the signer of the bundle.
	Signer = "kubernetes.io/kube-apiserver-serving"
	// Prefix is how the names of bundles of the signer begin. The rest says what is in them.
	Prefix = "kubernetes.io:kube-apiserver-serving:"
)

// Bundle returns the bundle that publishes PEM certificates, as it is stored. A bundle may only have
// those of authorities.
func Bundle(roots []byte) *certificatesv1beta1.ClusterTrustBundle {
	var bundle []byte
	for block, rest := pem.Decode(roots); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.IsCA {
			bundle = append(bundle, pem.EncodeToMemory(block)...)
		}
	}
	hash := sha256.Sum256(bundle)
	return &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%x", Prefix, hash[:12])},
		Spec: certificatesv1beta1.ClusterTrustBundleSpec{
			SignerName: Signer, TrustBundle: string(bundle),
		},
	}
}

// Loop is the loop that publishes PEM certificates, and deletes the bundles of former ones.
func Loop(roots []byte) loop.Loop {
	return loop.Loop{
		Name:    Name,
		Purpose: "publishes the certificates that verify the API server as a ClusterTrustBundle",
		Begin: func(l *loop.Controller) loop.Work {
			c := &controller{
				Controller: l, bundles: l.Informer(&certificatesv1beta1.ClusterTrustBundle{}),
				want: Bundle(roots),
			}
			c.Add(c.want.Name)
			return loop.Work{Sync: c.sync, Watches: []loop.Watch{
				loop.On(c.bundles, func(old, b *certificatesv1beta1.ClusterTrustBundle) {
					if b == nil {
						b = old
					}
					if b.Spec.SignerName == Signer {
						c.Enqueue(b.Name)
					}
				}),
			}}
		},
	}
}

type controller struct {
	*loop.Controller
	bundles cache.SharedIndexInformer
	want    *certificatesv1beta1.ClusterTrustBundle
}

// sync makes, mends or deletes a bundle of the signer.
func (c *controller) sync(ctx context.Context, name string) (time.Duration, error) {
	is := loop.Get[certificatesv1beta1.ClusterTrustBundle](c.bundles, name)
	api, spec := c.Client.CertificatesV1().ClusterTrustBundles(), &c.want.Spec
	var err error
	switch {
	case name != c.want.Name:
		if is != nil {
			err = api.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
				UID: &is.UID,
			}})
		}
	case is == nil:
		_, err = api.Create(ctx, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.ClusterTrustBundleSpec{
				SignerName: spec.SignerName, TrustBundle: spec.TrustBundle,
			},
		}, metav1.CreateOptions{})
	case is.Spec != *spec:
		_, err = api.Update(ctx, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: *is.ObjectMeta.DeepCopy(),
			Spec: certificatesv1.ClusterTrustBundleSpec{
				SignerName: spec.SignerName, TrustBundle: spec.TrustBundle,
			},
		}, metav1.UpdateOptions{})
	}
	// A creation finds nothing if the API is switched off.
	return 0, loop.IgnoreChanged(err)
}
