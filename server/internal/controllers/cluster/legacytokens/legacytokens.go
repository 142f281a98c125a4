// Package legacytokens deletes the token secrets that old versions of Kubernetes made for every
// ServiceAccount, once nobody has used them for a year (KEP-2799). A cluster restored from a backup
// may have such secrets. A config map says since when their use has been recorded.
package legacytokens

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
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

// Loop is the loop that cleans up unused secrets. Now is the clock.
func Loop(now func() time.Time) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "legacy-service-account-token-cleaner",
		Purpose: "deletes token Secrets that have not been used for a year",
		After:   []schema.GroupResource{corev1.Resource("secrets")},
		Begin: func(l *loop.Controller) loop.Work {
			c := &controller{l, now}
			c.Add("") // the only key
			return loop.Work{Sync: c.sync}
		},
	}
}

type controller struct {
	*loop.Controller
	now func() time.Time
}

// sync invalidates or deletes the unused secrets. It needs no informer in the first year.
func (c *controller) sync(ctx context.Context, _ string) (time.Duration, error) {
	now := c.now().UTC()
	since, err := trackedSince(ctx, c.Client)
	if err != nil || now.Before(since.Add(kept)) {
		return interval, err
	}
	if err := c.Watch(loop.Watch{Informer: c.Informer(&corev1.Secret{})},
		loop.Watch{Informer: c.Informer(&corev1.ServiceAccount{})},
		loop.Watch{Informer: c.Informer(&corev1.Pod{})}); err != nil {
		return 0, err
	}
	if err := c.WaitForSync(ctx); err != nil {
		return 0, err
	}
	secrets, err := corelisters.NewSecretLister(c.Indexer(&corev1.Secret{})).List(labels.Everything())
	if err != nil {
		return 0, err
	}
	r := references{c.Controller, map[string]map[string]bool{}, map[string]map[string]bool{}}
	for _, secret := range secrets {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		unused, err := c.unused(secret, now.Add(-kept), r)
		if err == nil && unused {
			err = c.clean(ctx, secret, now)
		}
		if err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Cleaning up failed", "controller", Name,
				"secret", cache.MetaObjectToName(secret))
		}
	}
	return interval, nil
}

// unused reports whether a secret was made for a ServiceAccount, was not used since a day, and is
// used by no pod. A ServiceAccount lists the secrets that were made for it.
func (c *controller) unused(
	secret *corev1.Secret, since time.Time, r references,
) (bool, error) {
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
	account, err := corelisters.NewServiceAccountLister(c.Indexer(&corev1.ServiceAccount{})).
		ServiceAccounts(secret.Namespace).Get(secret.Annotations[corev1.ServiceAccountNameKey])
	if err != nil {
		return false, loop.IgnoreNotFound(err)
	}
	uid := secret.Annotations[corev1.ServiceAccountUIDKey]
	return (uid == "" || uid == string(account.UID)) && r.lists(account, secret.Name) &&
		!r.uses(secret.Namespace, secret.Name), nil
}

// references remember for a pass what refers to secrets. There may be many secrets and many pods in
// a namespace, which are looked at once.
type references struct {
	*loop.Controller
	listed map[string]map[string]bool // by the key of an account
	used   map[string]map[string]bool // by namespace
}

// lists reports whether an account lists a secret.
func (r references) lists(account *corev1.ServiceAccount, secret string) bool {
	key := loop.Key(account)
	if r.listed[key] == nil {
		r.listed[key] = map[string]bool{}
		for _, ref := range account.Secrets {
			r.listed[key][ref.Name] = true
		}
	}
	return r.listed[key][secret]
}

// uses reports whether a pod uses a secret.
func (r references) uses(namespace, secret string) bool {
	if r.used[namespace] == nil {
		used := map[string]bool{}
		r.used[namespace] = used
		pods := r.Informer(&corev1.Pod{})
		for _, pod := range loop.InNamespace[corev1.Pod](pods, namespace) {
			podreferences.Each(pod, func(resource, name string) {
				if resource == "secrets" {
					used[name] = true
				}
			})
		}
	}
	return r.used[namespace][secret]
}

// clean labels an unused secret as invalid, and deletes it a year later.
func (c *controller) clean(ctx context.Context, secret *corev1.Secret, now time.Time) error {
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
	return loop.IgnoreChanged(err)
}
