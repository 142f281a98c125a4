package certificates

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// MayUseSigner asks whether a user may do something, such as "sign", for a signer or for all signers of its domain.
func MayUseSigner(ctx context.Context, a authorizer.UnconditionalAuthorizer, u user.Info, verb, signer string) bool {
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

// isKubernetesSigner tells the signers of the project.
func isKubernetesSigner(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}
