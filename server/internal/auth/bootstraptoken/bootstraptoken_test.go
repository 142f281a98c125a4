package bootstraptoken_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kinproc/kinproc/server/internal/auth/bootstraptoken"
)

const token = "abcdef.0123456789abcdef"

// secret returns the secret of the token, with some of its data changed.
func secret(changes ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
		Type:       "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"),
			"usage-bootstrap-authentication": []byte("true"),
			"expiration":                     []byte(time.Now().Add(time.Hour).Format(time.RFC3339)),
			"auth-extra-groups":              []byte("system:bootstrappers:workers"),
		},
	}
	for i := 0; i < len(changes); i += 2 {
		s.Data[changes[i]] = []byte(changes[i+1])
	}
	return s
}

func TestToken(t *testing.T) {
	t.Parallel()
	a := bootstraptoken.New(fake.NewClientset(secret()).CoreV1())
	answer, ok, err := a.AuthenticateToken(t.Context(), token)
	if err != nil || !ok {
		t.Fatalf("refused: %v", err)
	}
	if got := answer.User.GetName(); got != "system:bootstrap:abcdef" {
		t.Errorf("user %s", got)
	}
	want := []string{"system:bootstrappers", "system:bootstrappers:workers"}
	if got := answer.User.GetGroups(); !slices.Equal(got, want) {
		t.Errorf("groups %q", got)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	otherType := secret()
	otherType.Type = corev1.SecretTypeOpaque
	deleted := secret()
	deleted.DeletionTimestamp, deleted.Finalizers = new(metav1.Now()), []string{"example.com/keep"}
	elsewhere := secret()
	elsewhere.Namespace = "default"
	for name, test := range map[string]struct {
		token  string
		secret *corev1.Secret
	}{
		"no secret":       {"ghijkl.0123456789abcdef", secret()},
		"other namespace": {token, elsewhere},
		"wrong secret":    {"abcdef.fedcba9876543210", secret()},
		"wrong form":      {"abcdef.0123", secret("token-secret", "0123")},
		"wrong id":        {token, secret("token-id", "ghijkl")},
		"other use":       {token, secret("usage-bootstrap-authentication", "false")},
		"expired":         {token, secret("expiration", "2020-01-01T00:00:00Z")},
		"odd time":        {token, secret("expiration", "tomorrow")},
		"other group":     {token, secret("auth-extra-groups", "system:masters")},
		"other type":      {token, otherType},
		"being deleted":   {token, deleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := bootstraptoken.New(fake.NewClientset(test.secret).CoreV1())
			if answer, ok, err := a.AuthenticateToken(t.Context(), test.token); ok || err != nil {
				t.Errorf("got %v, %v", answer, err)
			}
		})
	}
}
