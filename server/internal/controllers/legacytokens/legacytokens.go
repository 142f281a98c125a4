// Package legacytokens deletes the token secrets that old versions of Kubernetes made for every
// ServiceAccount, once nobody has used them for a year (KEP-2799). A cluster restored from a backup
// may have such secrets.
//
//	err := legacytokens.New(legacytokens.Dependencies{
//		Client: client, Informers: factory, Now: time.Now,
//	}).Run(ctx)
package legacytokens

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
	"github.com/kinproc/kinproc/server/internal/controllers/tokentracking"
	"github.com/kinproc/kinproc/server/internal/podreferences"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "legacy-serviceaccount-token-cleaner-controller"

// How long an unused secret stays valid, and then is kept, and how often the controller looks, as
// in kube-controller-manager.
const (
	kept     = 365 * 24 * time.Hour
	interval = 24 * time.Hour
)

// Dependencies are what the controller needs.
type Dependencies struct {
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Now       func() time.Time
}

// Controller is the control loop.
type Controller struct{ Dependencies }

// New returns a controller.
func New(d Dependencies) *Controller { return &Controller{d} }

// Run looks for unused secrets until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Looking for unused secrets failed",
				"controller", Name)
		}
	}, interval)
	return nil
}

// look invalidates or deletes the unused secrets. It needs no informer in the first year.
func (c *Controller) look(ctx context.Context) error {
	now := c.Now().UTC()
	since, err := tokentracking.Since(ctx, c.Client)
	if err != nil || now.Before(since.Add(kept)) {
		return err
	}
	core := c.Informers.Core().V1()
	synced := []cache.DoneChecker{
		core.Secrets().Informer().HasSyncedChecker(),
		core.ServiceAccounts().Informer().HasSyncedChecker(),
		core.Pods().Informer().HasSyncedChecker(),
	}
	c.Informers.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	secrets, err := core.Secrets().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	for _, secret := range secrets {
		unused, err := c.unused(secret, now.Add(-kept))
		if err == nil && unused {
			err = c.clean(ctx, secret, now)
		}
		if err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Cleaning up failed", "controller", Name,
				"secret", cache.MetaObjectToName(secret))
		}
	}
	return nil
}

// unused reports whether a secret was made for a ServiceAccount, was not used since a day, and is
// used by no pod. A ServiceAccount lists the secrets that were made for it.
func (c *Controller) unused(secret *corev1.Secret, since time.Time) (bool, error) {
	if secret.Type != corev1.SecretTypeServiceAccountToken || secret.DeletionTimestamp != nil ||
		!secret.CreationTimestamp.Time.Before(since) {
		return false, nil
	}
	if used, ok := secret.Labels[serviceaccount.LastUsed]; ok {
		day, err := time.Parse(time.DateOnly, used)
		if err != nil {
			return false, fmt.Errorf("label %s: %w", serviceaccount.LastUsed, err)
		}
		if !day.Before(since.Truncate(24 * time.Hour)) {
			return false, nil
		}
	}
	core := c.Informers.Core().V1()
	account, err := core.ServiceAccounts().Lister().ServiceAccounts(secret.Namespace).
		Get(secret.Annotations[corev1.ServiceAccountNameKey])
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if uid := secret.Annotations[corev1.ServiceAccountUIDKey]; err != nil ||
		uid != "" && uid != string(account.UID) ||
		!slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool {
			return r.Name == secret.Name
		}) {
		return false, err
	}
	pods, err := core.Pods().Lister().Pods(secret.Namespace).List(labels.Everything())
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return podreferences.Has(pod, "secrets", secret.Name)
	}), err
}

// clean labels an unused secret as invalid, and deletes it a year later.
func (c *Controller) clean(ctx context.Context, secret *corev1.Secret, now time.Time) error {
	client := c.Client.CoreV1().Secrets(secret.Namespace)
	invalid, err := time.Parse(time.DateOnly, secret.Labels[serviceaccount.InvalidSince])
	if err != nil { // no label, or a wrong one
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":    secret.UID,
			"labels": map[string]string{serviceaccount.InvalidSince: now.Format(time.DateOnly)},
		}})
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	if !invalid.Before(now.Add(-kept).Truncate(24 * time.Hour)) {
		return nil
	}
	err = client.Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &secret.ResourceVersion},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
