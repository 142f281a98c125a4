// Package tokensecrets has the controller that fills secrets of type
// kubernetes.io/service-account-token with a token, and deletes those whose account is gone. A
// secret that is deleted is removed from the list in its account.
package tokensecrets

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "serviceaccount-token-controller"

// Issuer issues the tokens that are stored in secrets.
type Issuer interface {
	IssueForSecret(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error)
}

// Loop is the loop that fills secrets. Ca is the PEM bundle that verifies the API server.
func Loop(issuer Issuer, ca []byte) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "serviceaccount-token",
		Purpose: "fills in the token Secrets of ServiceAccounts",
		After:   []schema.GroupResource{corev1.Resource("secrets")},
		Begin: func(l *loop.Controller) loop.Work {
			c := &controller{
				Controller: l, issuer: issuer, ca: ca,
				secrets: l.Informer(&corev1.Secret{}), accounts: l.Informer(&corev1.ServiceAccount{}),
			}
			return loop.Work{Sync: c.sync, Watches: []loop.Watch{
				loop.On(c.secrets, c.secretChanged), loop.On(c.accounts, c.accountChanged),
			}}
		},
	}
}

type controller struct {
	*loop.Controller
	secrets, accounts cache.SharedIndexInformer
	issuer            Issuer
	ca                []byte
}

// separator parts the keys of secrets that were deleted: the key of the secret, the name and the
// uid of its account. The uid is empty if it is not known.
const separator = "\x00"

func (c *controller) secretChanged(old, s *corev1.Secret) {
	switch {
	case s != nil && s.Type == corev1.SecretTypeServiceAccountToken:
		c.Enqueue(loop.Key(s))
	case s == nil && old.Type == corev1.SecretTypeServiceAccountToken:
		c.Enqueue(strings.Join([]string{
			loop.Key(old), old.Annotations[corev1.ServiceAccountNameKey],
			old.Annotations[corev1.ServiceAccountUIDKey],
		}, separator))
	}
}

func (c *controller) accountChanged(old, a *corev1.ServiceAccount) {
	if old != nil && a != nil && old.UID == a.UID {
		return
	}
	if a == nil {
		a = old
	}
	for _, s := range loop.InNamespace[corev1.Secret](c.secrets, a.Namespace) {
		if s.Type == corev1.SecretTypeServiceAccountToken &&
			s.Annotations[corev1.ServiceAccountNameKey] == a.Name {
			c.Enqueue(loop.Key(s))
		}
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	if gone, account, ok := strings.Cut(key, separator); ok {
		account, uid, _ := strings.Cut(account, separator)
		return 0, c.unlist(ctx, gone, account, types.UID(uid))
	}
	secret := loop.Get[corev1.Secret](c.secrets, key)
	if secret == nil || secret.DeletionTimestamp != nil ||
		secret.Annotations[corev1.ServiceAccountNameKey] == "" {
		return 0, nil
	}
	account, err := c.account(ctx, secret)
	if err != nil {
		return 0, err
	}
	if account == nil {
		err := c.Client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{
				UID: &secret.UID, ResourceVersion: &secret.ResourceVersion,
			},
		})
		return 0, loop.IgnoreChanged(err) // the informer sees the change
	}
	return 0, c.fill(ctx, account, secret.DeepCopy())
}

// account returns the account of a secret, or nil if it is gone. It asks the server before it says
// so, because the informer may not have the newest accounts.
func (c *controller) account(
	ctx context.Context, secret *corev1.Secret,
) (*corev1.ServiceAccount, error) {
	name := secret.Annotations[corev1.ServiceAccountNameKey]
	uid := secret.Annotations[corev1.ServiceAccountUIDKey]
	matches := func(a *corev1.ServiceAccount) bool { return uid == "" || uid == string(a.UID) }
	account := loop.Get[corev1.ServiceAccount](c.accounts, secret.Namespace+"/"+name)
	// A new secret is bound to the account that has the name now.
	if account != nil && uid != "" && matches(account) {
		return account, nil
	}
	account, err := c.Client.CoreV1().ServiceAccounts(secret.Namespace).Get(ctx, name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !matches(account) {
		return nil, nil
	}
	return account, err
}

// unlist removes a deleted secret from the list of secrets of its account.
func (c *controller) unlist(ctx context.Context, secret, of string, uid types.UID) error {
	if of == "" {
		return nil
	}
	namespace, name, _ := strings.Cut(secret, "/")
	accounts := c.Client.CoreV1().ServiceAccounts(namespace)
	account, err := accounts.Get(ctx, of, metav1.GetOptions{})
	if err != nil {
		return loop.IgnoreNotFound(err)
	}
	if uid != "" && uid != account.UID {
		return nil
	}
	n := len(account.Secrets)
	account.Secrets = slices.DeleteFunc(account.Secrets, func(r corev1.ObjectReference) bool {
		return r.Name == name
	})
	if len(account.Secrets) == n {
		return nil
	}
	_, err = accounts.Update(ctx, account, metav1.UpdateOptions{})
	if err = loop.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("remove secret %s from the list of its account: %w", name, err)
	}
	return nil
}

// fill writes what is missing in a secret.
func (c *controller) fill(
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
	_, err := c.Client.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	if err = loop.IgnoreChanged(err); err != nil { // the informer sees the change
		return fmt.Errorf("fill secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
