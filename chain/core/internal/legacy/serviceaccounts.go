package legacy

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// mountableSecretsAnnotation limits which secrets the pods of a service account may mount. It is
// deprecated: separate namespaces supersede it.
const mountableSecretsAnnotation = "kubernetes.io/enforce-mountable-secrets"

// ServiceAccounts declares serviceaccounts. The issuer signs their tokens, and objects reads the
// objects that tokens are bound to.
func ServiceAccounts(issuer TokenIssuer, objects BoundObjects) *kind.Kind[*corev1.ServiceAccount] {
	return &kind.Kind[*corev1.ServiceAccount]{
		Plural:        "serviceaccounts",
		ShortNames:    []string{"sa"},
		PrepareCreate: func(_ context.Context, a *corev1.ServiceAccount) { keepSecretNames(a) },
		PrepareUpdate: func(_ context.Context, a, _ *corev1.ServiceAccount) { keepSecretNames(a) },
		Table: kind.Table[*corev1.ServiceAccount]{
			Columns: []kind.Column{kind.NameColumn(), kind.AgeColumn()},
			Row:     func(a *corev1.ServiceAccount) []any { return []any{a.Name, kind.Age(a)} },
		},
		Warnings: warnServiceAccount,
		Subresources: []kind.Subresource[*corev1.ServiceAccount]{{
			Name: "token",
			New: func(store *genericregistry.Store) rest.Storage {
				return &tokenREST{accounts: store, issuer: issuer, objects: objects}
			},
		}},
		Quirks: kind.Quirks{NameOnUpdate: true, ReturnDeleted: true},
	}
}

// keepSecretNames clears everything but the names of the secrets: an account can only reference
// secrets in its namespace.
func keepSecretNames(a *corev1.ServiceAccount) {
	for i := range a.Secrets {
		a.Secrets[i] = corev1.ObjectReference{Name: a.Secrets[i].Name}
	}
}

func warnServiceAccount(_ context.Context, a, old *corev1.ServiceAccount) []string {
	if _, ok := a.Annotations[mountableSecretsAnnotation]; !ok {
		return nil
	}
	if old != nil {
		if _, had := old.Annotations[mountableSecretsAnnotation]; had {
			return nil
		}
	}
	return []string{`metadata.annotations["` + mountableSecretsAnnotation +
		`"]: deprecated since v1.32; use separate namespaces to isolate secrets`}
}
