package tokensecrets_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/servertest"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	client, ctx := kubernetes.NewForConfigOrDie(s.RESTConfig()), t.Context()
	secrets := client.CoreV1().Secrets("default")
	accounts := client.CoreV1().ServiceAccounts("default")
	account := func() {
		t.Helper()
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "robot"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	secret := func(name, account string) {
		t.Helper()
		_, err := secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account},
			},
			Type: corev1.SecretTypeServiceAccountToken,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually := func(name, what string, check func(*corev1.Secret) bool) (found *corev1.Secret) {
		t.Helper()
		err := wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, 30*time.Second, true,
			func(ctx context.Context) (bool, error) {
				var err error
				found, err = secrets.Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					found, err = nil, nil
				}
				return err == nil && check(found), err
			})
		if err != nil {
			t.Fatalf("%s is not %s: %v", name, what, err)
		}
		return found
	}
	gone := func(s *corev1.Secret) bool { return s == nil }

	secret("nobody", "nobody")
	eventually("nobody", "gone", gone)

	account()
	secret("robot-token", "robot")
	filled := eventually("robot-token", "filled", func(s *corev1.Secret) bool {
		return s != nil && len(s.Data[corev1.ServiceAccountTokenKey]) > 0
	})
	if string(filled.Data[corev1.ServiceAccountNamespaceKey]) != "default" ||
		filled.Annotations[corev1.ServiceAccountUIDKey] == "" {
		t.Errorf("unexpected secret: %+v", filled)
	}
	config := rest.AnonymousClientConfig(s.RESTConfig())
	config.CAData = filled.Data[corev1.ServiceAccountRootCAKey]
	config.BearerToken = string(filled.Data[corev1.ServiceAccountTokenKey])
	robot := kubernetes.NewForConfigOrDie(config)
	// The account is known, but may do nothing.
	if _, err := robot.CoreV1().Pods("default").List(ctx,
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("with the token: %v, want an account without permissions", err)
	}

	// A secret goes with its account, also if another account has its name at once.
	if err := accounts.Delete(ctx, "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	account()
	eventually("robot-token", "gone", gone)
	if _, err := robot.CoreV1().Pods("default").List(ctx,
		metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("with the token of a deleted secret: %v", err)
	}
}
