package standin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// unsupported are the flags of kube-apiserver 1.37 that cannot be honoured, by the reason.
var unsupported = map[string]string{
	"kinproc has no such authenticator": `authentication-config authentication-token-webhook-cache-ttl
		authentication-token-webhook-config-file authentication-token-webhook-version
		oidc-ca-file oidc-client-id oidc-groups-claim oidc-groups-prefix oidc-issuer-url
		oidc-required-claim oidc-signing-algs oidc-username-claim oidc-username-prefix
		service-account-signing-endpoint`,
	"kinproc has no such authorizer": `authorization-config authorization-policy-file
		authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
		authorization-webhook-config-file authorization-webhook-version`,
	"kinproc stores objects unencrypted": `encryption-provider-config
		encryption-provider-config-automatic-reload`,
	"kinproc serves HTTPS only": "insecure-bind-address",
	"kinproc has one listener with one certificate": `disable-http2-serving external-hostname
		http2-max-streams-per-connection permit-address-sharing permit-port-sharing
		tls-curve-preferences tls-sni-cert-key`,
	"kinproc uses etcd in its own way": `default-watch-cache-size delete-collection-workers
		etcd-compaction-interval etcd-count-metric-poll-period etcd-db-metric-poll-interval
		etcd-healthcheck-timeout etcd-readycheck-timeout etcd-servers-overrides event-ttl
		lease-reuse-duration-seconds storage-initialization-timeout watch-cache-sizes`,
	"kinproc serves each request in its own way": `aggregator-reject-forwarding-redirect
		contention-profiling cors-allowed-origins debug-socket-path egress-selector-config-file
		enable-logs-handler goaway-chance max-connection-bytes-per-sec min-request-timeout
		request-timeout strict-transport-security-directives tracing-config-file`,
	"kinproc is ready and ends in its own way": `livez-grace-period shutdown-delay-duration
		shutdown-send-retry-after shutdown-watch-termination-grace-period`,
	"kinproc serves one version of Kubernetes": `emulated-version emulation-forward-compatible
		min-compatibility-version runtime-config-emulation-forward-compatible
		allow-metric-labels allow-metric-labels-manifest disabled-metrics
		show-hidden-metrics-for-version`,
	"kinproc knows no peers": `coordinated-leadership-lease-duration
		coordinated-leadership-renew-deadline coordinated-leadership-retry-period peer-advertise-ip
		peer-advertise-port peer-ca-file`,
	"kinproc logs in its own way, see -v": `log-flush-frequency log-json-info-buffer-size
		log-json-split-stream log-text-info-buffer-size log-text-split-stream vmodule`,
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
