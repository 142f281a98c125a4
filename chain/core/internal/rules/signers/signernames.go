package signers

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

// maxSignerName leaves room for two DNS subdomains, a DNS label and two separators.
const maxSignerName = 2*validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 2

// ValidateName validates the name of a certificate signer, such as "example.com/signer".
func ValidateName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, path, found := strings.Cut(name, "/")
	if !found || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name, "must have the form example.com/signer-name")}
	}
	var errs field.ErrorList
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(at, domain, validation.DNS1123SubdomainMaxLength))
	}
	if len(name) > maxSignerName {
		errs = append(errs, field.TooLong(at, name, maxSignerName))
	}
	labels := strings.Split(domain, ".")
	if len(labels) < 2 {
		errs = append(errs, field.Invalid(at, domain, "must be a domain with at least two segments"))
	}
	for _, label := range labels {
		errs = append(errs, rules.Invalid(at, domain, validation.IsDNS1123Label(label))...)
	}
	for label := range strings.SplitSeq(path, ".") {
		errs = append(errs, rules.Invalid(at, path, validation.IsDNS1123Subdomain(label))...)
	}
	return errs
}
