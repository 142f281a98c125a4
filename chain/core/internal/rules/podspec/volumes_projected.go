package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/signers"
)

const (
	minTokenSeconds       = 10 * 60
	maxTokenSeconds       = 1 << 32
	minCertificateSeconds = 3600
	maxCertificateSeconds = 91 * 24 * 3600
	// maxKubernetesCertificateSeconds applies to the signers of Kubernetes.
	maxKubernetesCertificateSeconds = 24 * 3600
)

func (v *validator) validateProjected(
	s *corev1.ProjectedVolumeSource, path *field.Path,
) field.ErrorList {
	errs := validateMode(s.DefaultMode, path.Child("defaultMode"))
	p := projection{v: v, path: path, taken: sets.Set[string]{}}
	for i := range s.Sources {
		errs = append(errs, p.validate(&s.Sources[i], path.Child("sources").Index(i))...)
	}
	return errs
}

// projection validates the sources of a projected volume, whose files must have different paths.
type projection struct {
	v     *validator
	path  *field.Path
	taken sets.Set[string]
}

func (p *projection) validate(source *corev1.VolumeProjection, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := 0
	if s := source.Secret; s != nil {
		found++
		errs = append(errs, p.named(s.Name, s.Items, path.Child("secret"))...)
	}
	if s := source.ConfigMap; s != nil {
		found++
		errs = append(errs, p.named(s.Name, s.Items, path.Child("configMap"))...)
	}
	if s := source.DownwardAPI; s != nil {
		found++
		for i := range s.Items {
			errs = append(errs, validateDownwardFile(&s.Items[i], path.Child("downwardAPI"))...)
			errs = append(errs, p.take(s.Items[i].Path)...)
		}
	}
	if s := source.ServiceAccountToken; s != nil {
		found++
		errs = append(errs, p.token(s, path.Child("serviceAccountToken"))...)
	}
	if s := source.ClusterTrustBundle; s != nil {
		found++
		errs = append(errs, p.trustBundle(s, path.Child("clusterTrustBundle"))...)
	}
	if s := source.PodCertificate; s != nil {
		found++
		errs = append(errs, p.certificate(s, path.Child("podCertificate"))...)
	}
	if found > 1 {
		errs = append(errs, field.Forbidden(path, "may not specify more than 1 volume type"))
	}
	return errs
}

// take records the path of a file. Conflicts are reported for the whole volume.
func (p *projection) take(file string) field.ErrorList {
	if file == "" {
		return nil
	}
	if p.taken.Has(file) {
		return field.ErrorList{field.Invalid(p.path, file, "conflicting duplicate paths")}
	}
	p.taken.Insert(file)
	return nil
}

func (p *projection) named(
	name string, items []corev1.KeyToPath, path *field.Path,
) field.ErrorList {
	errs := required(path.Child("name"), name)
	errs = append(errs, validateItems(items, path.Child("items"))...)
	for _, item := range items {
		errs = append(errs, p.take(item.Path)...)
	}
	return errs
}

func (p *projection) token(
	s *corev1.ServiceAccountTokenProjection, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if s.ExpirationSeconds != nil &&
		(*s.ExpirationSeconds < minTokenSeconds || *s.ExpirationSeconds > maxTokenSeconds) {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), *s.ExpirationSeconds,
			"must be between ten minutes and 2^32 seconds"))
	}
	// As in kube-apiserver, the path is that of the volume, not of the source.
	switch {
	case s.Path == "":
		errs = append(errs, field.Required(p.path.Child("path"), ""))
	case !p.v.opts.badTokenPaths:
		errs = append(errs, validateRelativePath(s.Path, p.path.Child("path"))...)
	}
	// As in kube-apiserver, the path is not recorded: a token may hide another file.
	return errs
}

func (p *projection) trustBundle(
	s *corev1.ClusterTrustBundleProjection, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	byName, bySigner := s.Name != nil, s.SignerName != nil
	switch {
	case byName && bySigner:
		errs = append(errs, field.Invalid(path, "", "may not specify both name and signerName"))
	case byName:
		errs = append(errs, required(path.Child("name"), *s.Name)...)
		// Names of bundles that belong to a signer start with the name of the signer.
		own := (*s.Name)[strings.LastIndex(*s.Name, ":")+1:]
		errs = append(errs, rules.Invalid(path.Child("name"), *s.Name,
			apivalidation.NameIsDNSSubdomain(own, false))...)
		if s.LabelSelector != nil {
			errs = append(errs, field.Invalid(path.Child("labelSelector"), s.LabelSelector,
				"may only be set together with signerName"))
		}
	case bySigner:
		errs = append(errs, signers.ValidateName(*s.SignerName, path.Child("signerName"))...)
		errs = append(errs, validateSelector(s.LabelSelector, false, path.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(path, "must specify either name or signerName"))
	}
	errs = append(errs, required(path.Child("path"), s.Path)...)
	errs = append(errs, validateRelativePath(s.Path, path.Child("path"))...)
	return append(errs, p.take(s.Path)...)
}

func (p *projection) certificate(
	s *corev1.PodCertificateProjection, path *field.Path,
) field.ErrorList {
	errs := signers.ValidateName(s.SignerName, path.Child("signerName"))
	keyTypes := []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}
	if !slices.Contains(keyTypes, s.KeyType) {
		errs = append(errs, field.NotSupported(path.Child("keyType"), s.KeyType, keyTypes))
	}
	if s.MaxExpirationSeconds != nil {
		limit := int32(maxCertificateSeconds)
		if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" ||
			strings.HasSuffix(domain, ".kubernetes.io") {
			limit = maxKubernetesCertificateSeconds
		}
		errs = append(errs, inRange(path.Child("maxExpirationSeconds"), *s.MaxExpirationSeconds,
			minCertificateSeconds, limit)...)
	}
	if s.CredentialBundlePath == "" && s.KeyPath == "" && s.CertificateChainPath == "" {
		errs = append(errs, field.Required(path,
			"must specify credentialBundlePath, or keyPath and certificateChainPath"))
	}
	for name, file := range map[string]string{
		"credentialBundlePath": s.CredentialBundlePath,
		"keyPath":              s.KeyPath,
		"certificateChainPath": s.CertificateChainPath,
	} {
		if file != "" {
			errs = append(errs, validateRelativePath(file, path.Child(name))...)
			errs = append(errs, p.take(file)...)
		}
	}
	errs = append(errs, apivalidation.ValidateAnnotations(s.UserAnnotations,
		path.Child("userAnnotations"))...)
	for key := range s.UserAnnotations {
		errs = append(errs,
			validation.IsDomainPrefixedKey(path.Child("userAnnotations").Key(key), key)...)
	}
	return errs
}
