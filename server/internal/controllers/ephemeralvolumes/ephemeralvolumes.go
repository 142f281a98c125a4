// Package ephemeralvolumes makes the claims of the ephemeral volumes of pods. The garbage collector
// deletes them with their pods.
//
//	err := ephemeralvolumes.New(loop.Dependencies{…}).Run(ctx)
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
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// Name is the name of the controller in kube-controller-manager.
const Name = "ephemeral-volume-controller"

// Controller makes the claims of ephemeral volumes.
type Controller struct {
	client   kubernetes.Interface
	recorder record.EventRecorder
	pods     coreinformers.PodInformer
	claims   coreinformers.PersistentVolumeClaimInformer
	queue    *loop.Queue
}

// New returns the controller. It asks for its informers.
func New(d loop.Dependencies) *Controller {
	pods, claims := d.Informers.Core().V1().Pods(), d.Informers.Core().V1().PersistentVolumeClaims()
	pods.Informer()
	claims.Informer()
	return &Controller{d.Client, d.Recorder, pods, claims, loop.New(Name)}
}

// Run runs the controller until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var handlers loop.Handlers
	defer handlers.Remove()
	if err := handlers.Add(c.pods.Informer(), loop.OnChange(func(old, p *corev1.Pod) {
		if p != nil && (old == nil || old.UID != p.UID) { // the volumes of a pod never change
			c.podSeen(p)
		}
	})); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	if err := handlers.Add(c.claims.Informer(), loop.OnChange(
		func(old, claim *corev1.PersistentVolumeClaim) {
			if claim == nil {
				c.claimGone(old)
			}
		})); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return c.queue.Run(ctx, 4, c.sync, handlers.Synced()...)
}

func (c *Controller) podSeen(p *corev1.Pod) {
	if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil }) {
		c.queue.Soon(cache.MetaObjectToName(p).String())
	}
}

// claimGone adds the pods whose volume may have the name of a claim, whoever made the claim.
func (c *Controller) claimGone(claim *corev1.PersistentVolumeClaim) {
	for i, r := range claim.Name {
		if r == '-' { // between the names of the pod and of the volume
			c.queue.Soon(cache.NewObjectName(claim.Namespace, claim.Name[:i]).String())
		}
	}
}

func (c *Controller) sync(ctx context.Context, key string) (time.Duration, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return 0, err
	}
	p, err := c.pods.Lister().Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil || p.DeletionTimestamp != nil {
		return 0, err
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

func (c *Controller) fail(p *corev1.Pod, v *corev1.Volume, err error) {
	c.recorder.Eventf(p, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name,
		err)
}

// ensure makes the claim of a volume. If there is one of that name that is not the pod's, it waits
// until that one is gone.
func (c *Controller) ensure(ctx context.Context, p *corev1.Pod, v *corev1.Volume) error {
	name := ephemeral.VolumeClaimName(p, v)
	found, err := c.claims.Lister().PersistentVolumeClaims(p.Namespace).Get(name)
	if err == nil {
		if err := ephemeral.VolumeIsForPod(p, found); err != nil {
			c.fail(p, v, err)
		}
		return nil // the informer tells when that claim is gone
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	template := v.Ephemeral.VolumeClaimTemplate
	_, err = c.client.CoreV1().PersistentVolumeClaims(p.Namespace).Create(ctx,
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
		found, err := c.client.CoreV1().PersistentVolumeClaims(p.Namespace).Get(ctx, name,
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
