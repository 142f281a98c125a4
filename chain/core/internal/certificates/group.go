package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group certificates.k8s.io. The authorizer decides who may sign for a
// signer.
func Group(authorizer authorizer.UnconditionalAuthorizer) kind.Group {
	return kind.Group{
		Name: certificatesv1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1", AddToScheme: certificatesv1.AddToScheme},
			{Version: "v1beta1", AddToScheme: addBeta, OffByDefault: true},
		},
		Kinds: []kind.Declaration{
			CertificateSigningRequests(),
			ClusterTrustBundles(),
			PodCertificateRequests(authorizer),
		},
	}
}

// addBeta registers the v1beta1 types that are still served.
func addBeta(scheme *runtime.Scheme) error {
	gv := certificatesv1beta1.SchemeGroupVersion
	scheme.AddKnownTypes(gv,
		&certificatesv1beta1.ClusterTrustBundle{}, &certificatesv1beta1.ClusterTrustBundleList{},
		&certificatesv1beta1.PodCertificateRequest{}, &certificatesv1beta1.PodCertificateRequestList{},
	)
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}
