package looptest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/tokensecrets"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestTokenSecrets(t *testing.T) {
	t.Parallel()
	s, namespace := servertest.Shared(t)
	client, ctx := kubernetes.NewForConfigOrDie(s.RESTConfig()), t.Context()
	secrets := client.CoreV1().Secrets(namespace)
	accounts := client.CoreV1().ServiceAccounts(namespace)
	account := func() {
		t.Helper()
		workloadtest.Must(accounts.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "robot"},
		}, metav1.CreateOptions{}))(t)
	}
	secret := func(name, account string) {
		t.Helper()
		workloadtest.Must(secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account},
			},
			Type: corev1.SecretTypeServiceAccountToken,
		}, metav1.CreateOptions{}))(t)
	}
	await := func(name, what string, wanted func(*corev1.Secret) bool) *corev1.Secret {
		t.Helper()
		return workloadtest.Await(t, name+" "+what, func(ctx context.Context) (*corev1.Secret, error) {
			s, err := secrets.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil, nil
			}
			return s, err
		}, wanted)
	}
	gone := func(s *corev1.Secret) bool { return s == nil }

	secret("nobody", "nobody")
	await("nobody", "gone", gone)

	account()
	secret("robot-token", "robot")
	filled := await("robot-token", "filled", func(s *corev1.Secret) bool {
		return s != nil && len(s.Data[corev1.ServiceAccountTokenKey]) > 0
	})
	if string(filled.Data[corev1.ServiceAccountNamespaceKey]) != namespace ||
		filled.Annotations[corev1.ServiceAccountUIDKey] == "" {
		t.Errorf("unexpected secret: %+v", filled)
	}
	config := rest.AnonymousClientConfig(s.RESTConfig())
	config.CAData = filled.Data[corev1.ServiceAccountRootCAKey]
	config.BearerToken = string(filled.Data[corev1.ServiceAccountTokenKey])
	robot := kubernetes.NewForConfigOrDie(config)
	// The account is known, but may do nothing.
	if _, err := robot.CoreV1().Pods(namespace).List(ctx,
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("with the token: %v, want an account without permissions", err)
	}

	// A secret goes with its account, also if another account has its name at once.
	workloadtest.OK(t, accounts.Delete(ctx, "robot", metav1.DeleteOptions{}))
	account()
	await("robot-token", "gone", gone)
	if _, err := robot.CoreV1().Pods(namespace).List(ctx,
		metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("with the token of a deleted secret: %v", err)
	}
}

// tokenSecretsCluster is a control plane with accounts and secrets in a namespace.
type tokenSecretsCluster struct {
	*testing.T
	client kubernetes.Interface
}

func (c tokenSecretsCluster) accounts() typedcorev1.ServiceAccountInterface {
	return c.client.CoreV1().ServiceAccounts(workloadtest.Namespace)
}

func (c tokenSecretsCluster) secrets() typedcorev1.SecretInterface {
	return c.client.CoreV1().Secrets(workloadtest.Namespace)
}

// account creates an account that lists some secrets. An earlier one goes.
func (c tokenSecretsCluster) account(name string, secrets ...string) *corev1.ServiceAccount {
	c.Helper()
	err := c.accounts().Delete(c.Context(), name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		workloadtest.OK(c, err)
	}
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, s := range secrets {
		a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: s})
	}
	return workloadtest.Must(c.accounts().Create(c.Context(), a, metav1.CreateOptions{}))(c)
}

func (c tokenSecretsCluster) secret(name, account string) {
	c.Helper()
	workloadtest.Must(c.secrets().Create(c.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{}))(c)
}

// await waits until there is a filled secret of an account, or none if the account is nil.
func (c tokenSecretsCluster) await(name string, account *corev1.ServiceAccount) {
	c.Helper()
	workloadtest.Await(c, name, func(ctx context.Context) (*corev1.Secret, error) {
		s, err := c.secrets().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return s, err
	}, func(s *corev1.Secret) bool {
		if s == nil || account == nil {
			return s == nil && account == nil
		}
		return len(s.Data[corev1.ServiceAccountTokenKey]) > 0 &&
			s.Annotations[corev1.ServiceAccountUIDKey] == string(account.UID)
	})
}

// TestTokenSecretsRestart changes accounts and secrets while the loop does not run.
func TestTokenSecretsRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(options ...func(*server.Options)) (*server.Server, tokenSecretsCluster) {
		s := servertest.Run(t, append(options, func(o *server.Options) { o.DataDir = dir })...)
		return s, tokenSecretsCluster{t, workloadtest.Client(t, s)}
	}
	s, c := run()
	kept := c.account("kept")
	for _, name := range []string{"gone", "recreated"} {
		c.secret(name+"-token", c.account(name).Name)
	}
	c.secret("emptied", kept.Name)
	c.await("emptied", kept)
	c.await("recreated-token", workloadtest.Must(c.accounts().Get(t.Context(), "recreated",
		metav1.GetOptions{}))(t))
	workloadtest.OK(t, s.Stop(t.Context()))

	s, c = run(servertest.WithoutControllers)
	workloadtest.OK(t, c.accounts().Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	recreated := c.account("recreated")
	c.secret("new-token", "recreated")
	workloadtest.Must(c.secrets().Patch(t.Context(), "emptied", types.MergePatchType,
		[]byte(`{"data":null}`), metav1.PatchOptions{}))(t)
	workloadtest.OK(t, s.Stop(t.Context()))

	_, c = run()
	c.await("emptied", kept)
	c.await("new-token", recreated)
	c.await("recreated-token", nil)
	c.await("gone-token", nil)
}

// TestTokenSecretsOfRecreatedAccount replaces an account and makes a secret of it before the loop
// learns of the new account.
func TestTokenSecretsOfRecreatedAccount(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	c := tokenSecretsCluster{t, workloadtest.Client(t, s)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	workloadtest.OK(t, err)
	issuer, err := serviceaccount.New(serviceaccount.Options{Key: key})
	workloadtest.OK(t, err)
	c.account("robot")
	d, _ := workloadtest.Dependencies(c.client)
	accounts := d.Informer(&corev1.ServiceAccount{})
	valve := workloadtest.Valve(t, accounts)
	d.Informers.StartWithContext(t.Context())
	if !cache.WaitFor(t.Context(), "", accounts.HasSyncedChecker()) {
		t.Fatal("the informer did not sync")
	}
	valve.Lock()
	release := sync.OnceFunc(valve.Unlock)
	workloadtest.Start(t, d, tokensecrets.Loop(issuer, nil))
	t.Cleanup(release) // before the loop ends
	second := c.account("robot", "first-token", "second-token", "other")
	c.secret("first-token", "robot")
	c.secret("second-token", "robot")
	c.await("first-token", second)
	c.await("second-token", second)
	release()

	// The account does not list a secret that is deleted.
	workloadtest.OK(t, c.secrets().Delete(t.Context(), "first-token", metav1.DeleteOptions{}))
	workloadtest.Await(t, "the list of secrets",
		func(ctx context.Context) (*corev1.ServiceAccount, error) {
			return c.accounts().Get(ctx, "robot", metav1.GetOptions{})
		}, func(a *corev1.ServiceAccount) bool {
			return slices.Equal(a.Secrets, []corev1.ObjectReference{
				{Name: "second-token"}, {Name: "other"},
			})
		})
	c.await("second-token", second)
}
