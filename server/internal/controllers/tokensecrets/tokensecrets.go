// Package tokensecrets has the controller that fills secrets of type
// kubernetes.io/service-account-token with a token, and deletes those whose account is gone. A
// secret that is deleted is removed from the list in its account.
package tokensecrets

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "serviceaccount-token-controller"

// Issuer issues the tokens that are stored in secrets.
type Issuer interface {
	IssueForSecret(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error)
}

// Controller fills secrets.
type Controller struct {
	client   kubernetes.Interface
	secrets  coreinformers.SecretInformer
	accounts coreinformers.ServiceAccountInformer
	issuer   Issuer
	ca       []byte
}

// New returns a controller. Whoever made the informers starts them. Ca is the PEM bundle that
// verifies the API server.
func New(
	client kubernetes.Interface, informers coreinformers.Interface, issuer Issuer, ca []byte,
) *Controller {
	informers.Secrets().Informer()
	informers.ServiceAccounts().Informer()
	return &Controller{client, informers.Secrets(), informers.ServiceAccounts(), issuer, ca}
}

// Run runs the controller until ctx ends. It returns when all goroutines of the controller have
// ended.
func (c *Controller) Run(ctx context.Context) error {
	queue := loop.NewOf[key](Name, 5*time.Second)
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := handlers.Add(c.secrets.Informer(), loop.OnChange(func(old, s *corev1.Secret) {
		switch {
		case s != nil && s.Type == corev1.SecretTypeServiceAccountToken:
			queue.Soon(key{secret: cache.MetaObjectToName(s)})
		case s == nil && old.Type == corev1.SecretTypeServiceAccountToken:
			queue.Soon(key{
				secret:  cache.MetaObjectToName(old),
				account: old.Annotations[corev1.ServiceAccountNameKey],
				uid:     types.UID(old.Annotations[corev1.ServiceAccountUIDKey]),
			})
		}
	})); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	if err := handlers.Add(c.accounts.Informer(), loop.OnChange(func(old, a *corev1.ServiceAccount) {
		if old != nil && a != nil && old.UID == a.UID {
			return
		}
		if a == nil {
			a = old
		}
		secrets, err := c.secrets.Lister().Secrets(a.Namespace).List(labels.Everything())
		if err != nil {
			return // a cache does not fail
		}
		for _, s := range secrets {
			if s.Type == corev1.SecretTypeServiceAccountToken &&
				s.Annotations[corev1.ServiceAccountNameKey] == a.Name {
				queue.Soon(key{secret: cache.MetaObjectToName(s)})
			}
		}
	})); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return queue.Run(ctx, 1, c.sync, handlers.Synced()...)
}

// key is a secret or, with an account, a secret of the account that has been deleted.
type key struct {
	secret  cache.ObjectName
	account string
	uid     types.UID // of the account; empty if it is not known
}

func (c *Controller) sync(ctx context.Context, k key) (time.Duration, error) {
	if k.account != "" {
		return 0, c.unlist(ctx, k)
	}
	name := k.secret
	secret, err := c.secrets.Lister().Secrets(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil || secret.DeletionTimestamp != nil ||
		secret.Annotations[corev1.ServiceAccountNameKey] == "" {
		return 0, err
	}
	account, err := c.account(ctx, secret)
	if err != nil {
		return 0, err
	}
	if account == nil {
		err := c.client.CoreV1().Secrets(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{
				UID: &secret.UID, ResourceVersion: &secret.ResourceVersion,
			},
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return 0, nil // the informer sees the change
		}
		return 0, err
	}
	return 0, c.fill(ctx, account, secret.DeepCopy())
}

// account returns the account of a secret, or nil if it is gone. It asks the server before it says
// so, because the informer may not have the newest accounts.
func (c *Controller) account(
	ctx context.Context, secret *corev1.Secret,
) (*corev1.ServiceAccount, error) {
	name := secret.Annotations[corev1.ServiceAccountNameKey]
	uid := secret.Annotations[corev1.ServiceAccountUIDKey]
	matches := func(a *corev1.ServiceAccount) bool { return uid == "" || uid == string(a.UID) }
	account, err := c.accounts.Lister().ServiceAccounts(secret.Namespace).Get(name)
	// A new secret is bound to the account that has the name now.
	if err == nil && uid != "" && matches(account) {
		return account, nil
	}
	account, err = c.client.CoreV1().ServiceAccounts(secret.Namespace).Get(ctx, name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !matches(account) {
		return nil, nil
	}
	return account, err
}

// unlist removes a deleted secret from the list of secrets of its account.
func (c *Controller) unlist(ctx context.Context, k key) error {
	accounts := c.client.CoreV1().ServiceAccounts(k.secret.Namespace)
	account, err := accounts.Get(ctx, k.account, metav1.GetOptions{})
	if err != nil {
		return loop.IgnoreNotFound(err)
	}
	if k.uid != "" && k.uid != account.UID {
		return nil
	}
	n := len(account.Secrets)
	account.Secrets = slices.DeleteFunc(account.Secrets, func(r corev1.ObjectReference) bool {
		return r.Name == k.secret.Name
	})
	if len(account.Secrets) == n {
		return nil
	}
	_, err = accounts.Update(ctx, account, metav1.UpdateOptions{})
	if err = loop.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("remove secret %s from the list of its account: %w", k.secret, err)
	}
	return nil
}

// fill writes what is missing in a secret.
func (c *Controller) fill(
	ctx context.Context, account *corev1.ServiceAccount, secret *corev1.Secret,
) error {
	filled := len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 &&
		len(secret.Data[corev1.ServiceAccountNamespaceKey]) > 0 &&
		(len(c.ca) == 0 || bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], c.ca)) &&
		secret.Annotations[corev1.ServiceAccountUIDKey] == string(account.UID)
	if filled {
		return nil
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := c.issuer.IssueForSecret(account, secret)
		if err != nil {
			return err
		}
		secret.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	if len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		secret.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if len(c.ca) > 0 {
		secret.Data[corev1.ServiceAccountRootCAKey] = c.ca
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, corev1.ServiceAccountUIDKey, string(account.UID))
	_, err := c.client.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the informer sees the change
	}
	if err != nil {
		return fmt.Errorf("fill secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
