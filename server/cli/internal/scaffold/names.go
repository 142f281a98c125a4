package scaffold

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"k8s.io/apimachinery/pkg/util/validation"
)

var (
	versions = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
	kinds    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

// Validate returns all that is wrong with the names of a project.
func (p Project) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if problems := validation.IsDNS1035Label(p.Name); problems != nil {
		wrong("%q cannot be the name of a project and a Service: %s", p.Name, problems[0])
	}
	if err := module.CheckImportPath(p.Module); err != nil {
		wrong("--module: %w", err)
	}
	if p.Webhooks && !p.ControllerRuntime {
		wrong("--webhooks: controller-runtime serves them: add --controller-runtime")
	}
	if p.Storage != "" && !slices.Contains(Storages(), p.Storage) {
		wrong("--storage: %q is not one of %s", p.Storage, strings.Join(Storages(), ", "))
	}
	return errors.Join(append(errs, p.Kind.Validate())...)
}

// Validate returns all that is wrong with the names of a kind.
func (k Kind) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch problems := validation.IsDNS1123Subdomain(k.Group); {
	case problems != nil:
		wrong("--group: %q is not the name of an API group: %s", k.Group, problems[0])
	case !strings.Contains(k.Group, "."):
		wrong("--group: %q has no domain; use one that you own, such as %s.example.com", k.Group, k.Group)
	case k.Group[0] < 'a':
		wrong("--group: %q begins with a digit, so it cannot name a Go package", k.Group)
	case slices.Contains([]string{"internal", "vendor", "testdata"}, k.Package()):
		wrong("--group: the Go toolchain treats folders named %s specially", k.Package())
	case strings.HasSuffix(k.Group, ".k8s.io"), strings.HasSuffix(k.Group, ".kubernetes.io"):
		wrong("--group: %q belongs to Kubernetes; use a domain that you own", k.Group)
	}
	if !versions.MatchString(k.Version) {
		wrong("--version: %q is not an API version, such as v1, v1beta1 or v2alpha1", k.Version)
	}
	if !kinds.MatchString(k.Kind) || len(k.Kind) > validation.DNS1035LabelMaxLength {
		wrong("--kind: %q is not the name of a kind, such as PortRule", k.Kind)
	}
	if problems := validation.IsDNS1035Label(k.Plural); problems != nil {
		wrong("--plural: %q is not the name of a resource: %s", k.Plural, problems[0])
	}
	return errors.Join(errs...)
}

// CamelCase returns a name such as port-rule as PortRule.
func CamelCase(name string) string {
	var camel strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		if part != "" {
			camel.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return camel.String()
}
