package standin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// unsupported are the flags of kube-apiserver 1.37 that cannot be honoured, by the reason.
var unsupported = map[string]string{
	"kinproc signs tokens itself":          "service-account-signing-endpoint",
	"kinproc has no ABAC authorizer":       "authorization-policy-file",
	"kinproc serves HTTPS only":            "insecure-bind-address",
	"kinproc has one certificate":          "tls-sni-cert-key",
	"kinproc uses the key exchanges of Go": "tls-curve-preferences",
	"kinproc always serves HTTP/2 in its own way": `disable-http2-serving
		http2-max-streams-per-connection`,
	"kinproc names itself by the address it has":       "external-hostname",
	"kinproc keeps all objects in one etcd":            "etcd-servers-overrides",
	"kinproc does not answer pages of other sites":     "cors-allowed-origins",
	"kinproc does not tell browsers to stay on HTTPS":  "strict-transport-security-directives",
	"kinproc serves profiles at the API's port only":   "debug-socket-path",
	"kinproc connects directly":                        "egress-selector-config-file",
	"kinproc has traces of its own, see kinproc trace": "tracing-config-file",
	"kinproc emulates a version as it was": `emulation-forward-compatible
		min-compatibility-version runtime-config-emulation-forward-compatible`,
	"kinproc serves the metrics of the Kubernetes libraries as they are": `allow-metric-labels
		allow-metric-labels-manifest disabled-metrics show-hidden-metrics-for-version`,
	"kinproc runs plugins in a fixed order, see --enable-admission-plugins": "admission-control",
	"kinproc knows no peers": "peer-advertise-ip peer-advertise-port peer-ca-file",
}

// ExplainFlag adds to the error about an unknown flag why kinproc does not have it, if
// kube-apiserver does.
func ExplainFlag(err error) error {
	unknown := new(pflag.NotExistError)
	if !errors.As(err, &unknown) {
		return err
	}
	for why, names := range unsupported {
		for name := range strings.FieldsSeq(names) {
			if name == unknown.GetSpecifiedName() {
				return fmt.Errorf("--%s is not supported: %s; leave the flag out", name, why)
			}
		}
	}
	return err
}
