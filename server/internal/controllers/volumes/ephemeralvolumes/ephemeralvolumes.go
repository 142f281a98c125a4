// Package ephemeralvolumes creates the claims of the ephemeral volumes of pods. The garbage
// collector deletes them with their pods.
package ephemeralvolumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the loop in kube-controller-manager.
const Name = "ephemeral-volume-controller"

// Loop is the loop of ephemeral volumes.
func Loop() loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "ephemeral-volume", Component: "ephemeral_volume",
		Purpose:  "creates the claims of the ephemeral volumes of pods",
		Workload: true, Workers: 4, Begin: begin,
		After: []schema.GroupResource{corev1.Resource("pods")},
	}
}

type controller struct {
	*loop.Controller
	pods, claims cache.SharedIndexInformer
}

func begin(l *loop.Controller) loop.Work {
	c := &controller{l, l.Informer(&corev1.Pod{}), l.Informer(&corev1.PersistentVolumeClaim{})}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(c.pods, func(old, p *corev1.Pod) {
			if p != nil && (old == nil || old.UID != p.UID) && // the volumes of a pod never change
				slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil }) {
				c.Enqueue(loop.Key(p))
			}
		}),
		loop.On(c.claims, func(old, claim *corev1.PersistentVolumeClaim) {
			if claim == nil {
				c.claimGone(old)
			}
		}),
	}}
}

// claimGone adds the pods whose volume may have the name of a claim, whoever made the claim.
func (c *controller) claimGone(claim *corev1.PersistentVolumeClaim) {
	for i, r := range claim.Name {
		if r == '-' { // between the names of the pod and of the volume
			c.Enqueue(claim.Namespace + "/" + claim.Name[:i])
		}
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	p := loop.Get[corev1.Pod](c.pods, key)
	if p == nil || p.DeletionTimestamp != nil {
		return 0, nil
	}
	var errs []error
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Ephemeral == nil {
			continue
		}
		if err := c.ensure(ctx, p, v); err != nil {
			c.fail(p, v, err)
			errs = append(errs, err)
		}
	}
	return 0, errors.Join(errs...)
}

func (c *controller) fail(p *corev1.Pod, v *corev1.Volume, err error) {
	c.Recorder.Eventf(p, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name,
		err)
}

// ensure makes the claim of a volume. If there is one of that name that is not the pod's, it waits
// until that one is gone.
func (c *controller) ensure(ctx context.Context, p *corev1.Pod, v *corev1.Volume) error {
	name := ephemeral.VolumeClaimName(p, v)
	found := loop.Get[corev1.PersistentVolumeClaim](c.claims, p.Namespace+"/"+name)
	if found != nil {
		if err := ephemeral.VolumeIsForPod(p, found); err != nil {
			c.fail(p, v, err)
		}
		return nil // the informer tells when that claim is gone
	}
	template := v.Ephemeral.VolumeClaimTemplate
	_, err := c.Client.CoreV1().PersistentVolumeClaims(p.Namespace).Create(ctx,
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: template.Labels, Annotations: template.Annotations,
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod")),
				},
			},
			Spec: template.Spec,
		}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// The informer does not have it yet. It may be the pod's.
		found, err := c.Client.CoreV1().PersistentVolumeClaims(p.Namespace).Get(ctx, name,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		return ephemeral.VolumeIsForPod(p, found)
	}
	if err != nil {
		return fmt.Errorf("create PVC %s: %w", name, err)
	}
	return nil
}
