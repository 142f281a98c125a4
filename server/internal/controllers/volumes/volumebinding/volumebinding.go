// Package volumebinding binds claims to volumes, and simulates a provisioner of volumes.
//
// If there is no storage class when the first claim appears, the controller makes the default class
// [Class], whose volumes it provisions itself: as API objects, without any storage. The volumes of
// other classes are left to their provisioners.
//
// Unlike in kube-controller-manager, volumes are not recycled, and a volume without a provisioner
// is not deleted when it is released.
package volumebinding

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

const (
	// Name is the name of the controller in kube-controller-manager.
	Name = "persistentvolume-binder-controller"
	// Class is the name of the storage class that the controller makes.
	Class = "standard"
	// Provisioner is the provisioner that the controller simulates.
	Provisioner = "simulated.kinproc.dev"
)

// The keys of the queue begin with one of these.
const (
	claimKey  = "claim/"
	volumeKey = "volume/"
)

// Loop is the loop of claims and volumes. A single worker does everything, so that no two claims
// get the same volume. If makesClass is true, it makes the default class when a claim needs one.
func Loop(makesClass bool) loop.Loop {
	return loop.Loop{
		Name: Name, Alias: "persistentvolume-binder", Component: "persistentvolume-controller",
		Purpose: "binds claims to volumes, and simulates a provisioner for the class " + Class,
		Begin:   func(l *loop.Controller) loop.Work { return begin(l, makesClass) }, Workload: true,
		After: []schema.GroupResource{
			corev1.Resource("persistentvolumeclaims"), corev1.Resource("persistentvolumes"),
		},
	}
}

type controller struct {
	*loop.Controller
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	// makesClass is true if it may make the default class.
	makesClass bool
	// told has the last event about each claim, by the key of the claim, which would otherwise be
	// repeated. Only the worker uses it.
	told map[string]string
}

func begin(l *loop.Controller, makesClass bool) loop.Work {
	classes := l.Informer(&storagev1.StorageClass{})
	c := &controller{
		Controller: l,
		claims:     corelisters.NewPersistentVolumeClaimLister(l.Indexer(&corev1.PersistentVolumeClaim{})),
		volumes:    corelisters.NewPersistentVolumeLister(l.Indexer(&corev1.PersistentVolume{})),
		classes:    storagelisters.NewStorageClassLister(classes.GetIndexer()),
		makesClass: makesClass,
		told:       map[string]string{},
	}
	return loop.Work{Sync: c.sync, Watches: []loop.Watch{
		loop.On(l.Informer(&corev1.PersistentVolumeClaim{}), c.claimChanged),
		loop.On(l.Informer(&corev1.PersistentVolume{}), c.volumeChanged),
		loop.On(classes, func(_, class *storagev1.StorageClass) {
			if class != nil {
				c.addUnbound()
			}
		}),
	}}
}

func (c *controller) addClaim(namespace, name string) {
	c.Enqueue(claimKey + namespace + "/" + name)
}

func (c *controller) claimChanged(old, claim *corev1.PersistentVolumeClaim) {
	if claim != nil {
		c.addClaim(claim.Namespace, claim.Name)
		return
	}
	c.addClaim(old.Namespace, old.Name) // to forget it
	volumes, err := c.volumes.List(labels.Everything())
	if err != nil {
		return // a lister never fails
	}
	// The volume of the claim refers to it even if the binding was not completed.
	for _, v := range volumes {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == old.UID {
			c.Enqueue(volumeKey + v.Name)
		}
	}
}

func (c *controller) volumeChanged(old, v *corev1.PersistentVolume) {
	switch {
	case v != nil:
		c.Enqueue(volumeKey + v.Name)
		if v.Spec.ClaimRef == nil && v.Status.Phase == corev1.VolumeAvailable {
			c.addUnbound()
		}
	case old.Spec.ClaimRef != nil:
		c.addClaim(old.Spec.ClaimRef.Namespace, old.Spec.ClaimRef.Name)
	}
}

// addUnbound adds the claims that wait for a volume, or for the one they have lost.
func (c *controller) addUnbound() {
	claims, err := c.claims.List(labels.Everything())
	if err != nil {
		return // a lister never fails
	}
	for _, claim := range claims {
		if claim.Status.Phase != corev1.ClaimBound {
			c.addClaim(claim.Namespace, claim.Name)
		}
	}
}

func (c *controller) sync(ctx context.Context, key string) (time.Duration, error) {
	return 0, c.look(ctx, key)
}

func (c *controller) look(ctx context.Context, key string) error {
	if name, ok := strings.CutPrefix(key, volumeKey); ok {
		v, err := c.volumes.Get(name)
		if err != nil {
			return loop.IgnoreNotFound(err)
		}
		return c.syncVolume(ctx, v)
	}
	name, err := cache.ParseObjectName(strings.TrimPrefix(key, claimKey))
	if err != nil {
		return err
	}
	claim, err := c.claims.PersistentVolumeClaims(name.Namespace).Get(name.Name)
	if err != nil {
		delete(c.told, name.String())
		return loop.IgnoreNotFound(err)
	}
	return c.syncClaim(ctx, claim)
}

// tell records an event about a claim, unless it is the same as the last one.
func (c *controller) tell(
	claim *corev1.PersistentVolumeClaim, eventType, reason, format string, args ...any,
) {
	message := fmt.Sprintf(format, args...)
	key := cache.MetaObjectToName(claim).String()
	if event := string(claim.UID) + reason + message; c.told[key] != event {
		c.told[key] = event
		c.Recorder.Event(claim, eventType, reason, message)
	}
}

// classOf returns the storage class of a claim, or nil if there is none.
func (c *controller) classOf(claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return nil, nil
	}
	class, err := c.classes.Get(name)
	return class, loop.IgnoreNotFound(err)
}
