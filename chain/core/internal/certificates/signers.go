package certificates

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// MayUseSigner reports whether the authorizer allows a user a verb, such as "sign", on a signer or
// on all signers of the signer's domain.
func MayUseSigner(
	ctx context.Context, a authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string,
) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
			User:            u,
			Verb:            verb,
			APIGroup:        certificatesv1.GroupName,
			APIVersion:      "*",
			Resource:        "signers",
			Name:            name,
			ResourceRequest: true,
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}

// isKubernetesSigner reports whether a signer belongs to the Kubernetes project.
func isKubernetesSigner(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}
