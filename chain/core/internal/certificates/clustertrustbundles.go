package certificates

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/signers"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// maxTrustBundle is the maximum size of a trust bundle in bytes. A bundle must fit into an etcd
// request.
const maxTrustBundle = 1 << 20

// ClusterTrustBundles declares clustertrustbundles (KEP-3257). Kubernetes 1.37, which introduces
// v1, still stores them as v1beta1.
func ClusterTrustBundles() *kind.Kind[*certificatesv1beta1.ClusterTrustBundle] {
	type T = *certificatesv1beta1.ClusterTrustBundle
	return &kind.Kind[T]{
		Plural:        "clustertrustbundles",
		ClusterScoped: true,
		Enabled:       func() bool { return features.Enabled(features.ClusterTrustBundle) },
		Versions:      []kind.Version{kind.ServedAsSame[*certificatesv1.ClusterTrustBundle, T]()},
		// validateSigner checks the rest, which depends on the signer
		Name: path.ValidatePathSegmentName,
		Validate: func(_ context.Context, b T) field.ErrorList {
			return append(validateSigner(b), validateTrustBundle(b.Spec.TrustBundle)...)
		},
		ValidateUpdate: func(_ context.Context, b, old T) field.ErrorList {
			errs := validateSigner(b)
			// Whether a certificate parses may depend on the Go version that the server was built
			// with.
			if b.Spec.TrustBundle != old.Spec.TrustBundle {
				errs = append(errs, validateTrustBundle(b.Spec.TrustBundle)...)
			}
			return append(errs, apivalidation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName,
				field.NewPath("spec", "signerName"))...)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "SignerName", Description: "Signer that the trust anchors belong to."},
			},
			Row: func(b T) []any {
				signer := b.Spec.SignerName
				if signer == "" {
					signer = "<none>"
				}
				return []any{b.Name, signer}
			},
		},
		Fields: map[string]func(T) string{"spec.signerName": func(b T) string {
			return b.Spec.SignerName
		}},
	}
}

// validateSigner checks the signer and the name, which must start with the signer.
func validateSigner(b *certificatesv1beta1.ClusterTrustBundle) field.ErrorList {
	var errs field.ErrorList
	if signer := b.Spec.SignerName; signer != "" {
		errs = append(errs, signers.ValidateName(signer, field.NewPath("spec", "signerName"))...)
	}
	metadata := field.NewPath("metadata")
	if b.GenerateName != "" {
		errs = append(errs, validateBundleName(b.GenerateName, true, b.Spec.SignerName,
			metadata.Child("generateName"))...)
	}
	if b.Name == "" {
		return errs // the engine reports a missing name
	}
	return append(errs, validateBundleName(b.Name, false, b.Spec.SignerName,
		metadata.Child("name"))...)
}

func validateBundleName(name string, prefix bool, signer string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	rest := name
	if signer != "" {
		start := strings.ReplaceAll(signer, "/", ":") + ":"
		if !strings.HasPrefix(name, start) {
			errs = append(errs, field.Invalid(at, name,
				"must start with "+start+", derived from spec.signerName"))
		}
		rest = strings.TrimPrefix(name, start)
	}
	return append(errs, rules.Invalid(at, name, apivalidation.NameIsDNSSubdomain(rest, prefix))...)
}

func validateTrustBundle(bundle string) field.ErrorList {
	at := field.NewPath("spec", "trustBundle")
	if len(bundle) > maxTrustBundle {
		return field.ErrorList{field.TooLong(at, "" /* not the data */, maxTrustBundle)}
	}
	if err := parseCertificates([]byte(bundle), true); err != nil {
		return field.ErrorList{field.Invalid(at, "<value omitted>", err.Error())}
	}
	return nil
}
