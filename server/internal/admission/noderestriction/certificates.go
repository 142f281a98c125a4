package noderestriction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// ownCertificate allows a kubelet to request kubelet certificates only for its own node.
func ownCertificate(a admission.Attributes, node string) error {
	if a.GetOperation() != admission.Create {
		return nil
	}
	request, err := plugin.Cast[*certificatesv1.CertificateSigningRequest](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if s := request.Spec.SignerName; s != certificatesv1.KubeletServingSignerName &&
		s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	parsed, err := plugin.ParseCertificateRequest(request.Spec.Request)
	if err != nil {
		return plugin.Forbid(a, "spec.request: %w", err)
	}
	if parsed.Subject.CommonName != nodeUserPrefix+node {
		return plugin.Forbid(a, "spec.request: the common name must be %s%s", nodeUserPrefix, node)
	}
	return nil
}

// podCertificate allows a kubelet to request certificates for its own pods. A condition that may be
// temporary, such as an outdated UID, is an error but not a refusal, so that the kubelet tries
// again.
func (p *restriction) podCertificate(
	ctx context.Context, a admission.Attributes, node string,
) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return plugin.Forbid(a, "a kubelet may only create pod certificate requests")
	}
	request, err := plugin.Cast[*certificatesv1beta1.PodCertificateRequest](a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	spec := &request.Spec
	if string(spec.NodeName) != node {
		return plugin.Forbid(a, "spec.nodeName must be %q", node)
	}
	n, err := p.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("spec.nodeName: %w", err)
	}
	pod, err := p.Client.CoreV1().Pods(a.GetNamespace()).Get(ctx, spec.PodName, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("spec.podName: %w", err)
	case n.UID != spec.NodeUID:
		return errors.New("spec.nodeUID does not match the UID of the node")
	case pod.UID != spec.PodUID:
		return errors.New("spec.podUID does not match the UID of the pod")
	case pod.Spec.NodeName != node:
		return plugin.Forbid(a, "spec.podName: pod %q is not bound to node %q", pod.Name, node)
	case plugin.IsMirror(pod):
		return plugin.Forbid(a, "spec.podName: %q is a mirror pod", pod.Name)
	case pod.Spec.ServiceAccountName != spec.ServiceAccountName:
		return plugin.Forbid(a,
			"spec.serviceAccountName does not match the service account of pod %q", pod.Name)
	}
	account, err := p.Client.CoreV1().ServiceAccounts(a.GetNamespace()).Get(ctx,
		spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("spec.serviceAccountName: %w", err)
	}
	if account.UID != spec.ServiceAccountUID {
		return errors.New("spec.serviceAccountUID does not match the UID of the service account")
	}
	const verb = "request-serviceaccounts-podcertificate-signer"
	if hasCertificate(pod, spec.SignerName) || p.may(ctx, a, verb, certificatesv1.GroupName,
		strings.ReplaceAll(spec.SignerName, "/", ":"), account.Name) {
		return nil
	}
	return plugin.Forbid(a,
		"spec.signerName: no volume of pod %q projects a certificate from signer %q",
		pod.Name, spec.SignerName)
}

func hasCertificate(pod *corev1.Pod, signer string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
				return s.PodCertificate != nil && s.PodCertificate.SignerName == signer
			})
	})
}
