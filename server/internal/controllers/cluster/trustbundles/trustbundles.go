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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain/features"
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

// Bundle returns the bundle that publishes PEM certificates, as it is stored. A bundle may only
// have those of authorities.
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
		Gate:    features.ClusterTrustBundle,
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

// sync makes, mends or deletes a bundle of the signer. Kubernetes before 1.37 has bundles only as
// v1beta1, if at all.
func (c *controller) sync(ctx context.Context, name string) (time.Duration, error) {
	is := loop.Get[certificatesv1beta1.ClusterTrustBundle](c.bundles, name)
	v1, v1beta1 := c.Client.CertificatesV1(), c.Client.CertificatesV1beta1()
	var err error
	switch {
	case name != c.want.Name:
		if is != nil {
			options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &is.UID}}
			err = v1.ClusterTrustBundles().Delete(ctx, name, options)
			if apierrors.IsNotFound(err) {
				err = v1beta1.ClusterTrustBundles().Delete(ctx, name, options)
			}
		}
	case is == nil:
		options := metav1.CreateOptions{}
		_, err = v1.ClusterTrustBundles().Create(ctx, asV1(c.want), options)
		if apierrors.IsNotFound(err) {
			_, err = v1beta1.ClusterTrustBundles().Create(ctx, c.want, options)
		}
	case is.Spec != c.want.Spec:
		b, options := is.DeepCopy(), metav1.UpdateOptions{}
		b.Spec = c.want.Spec
		_, err = v1.ClusterTrustBundles().Update(ctx, asV1(b), options)
		if apierrors.IsNotFound(err) {
			_, err = v1beta1.ClusterTrustBundles().Update(ctx, b, options)
		}
	}
	// A creation finds nothing if the API is switched off.
	return 0, loop.IgnoreChanged(err)
}

func asV1(b *certificatesv1beta1.ClusterTrustBundle) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: b.ObjectMeta, Spec: certificatesv1.ClusterTrustBundleSpec(b.Spec),
	}
}
