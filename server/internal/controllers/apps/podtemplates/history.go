package podtemplates

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/controllers/loop"
	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
)

// hashLabel is the label of a revision with the hash of its data.
const hashLabel = "controller.kubernetes.io/hash"

// Lag is how long to wait after a conflict with a revision that the informer has not seen yet. It
// is far longer than an informer takes to see a write. Revisions cause no event.
const Lag = 20 * time.Millisecond

// defaultLimit is how many old revisions are kept unless the owner says otherwise.
const defaultLimit = 10

// Control keeps the revisions of one kind of owners.
type Control struct {
	client   kubernetes.Interface
	informer cache.SharedIndexInformer
}

// New returns a control for a loop.
func New(c *loop.Controller) *Control {
	return &Control{c.Client, c.Informer(&appsv1.ControllerRevision{})}
}

// Watch returns the watch of revisions, from which nothing follows.
func (c *Control) Watch() loop.Watch {
	return loop.Watch{Informer: c.informer, Indexers: ownerrefs.Indexers()}
}

// Claim returns the owner's revisions, the oldest first.
func (c *Control) Claim(
	ctx context.Context, owner ownerrefs.Owner,
) ([]*appsv1.ControllerRevision, error) {
	list, err := ownerrefs.Claim[*appsv1.ControllerRevision](ctx, c.informer.GetIndexer(), owner,
		func(ctx context.Context, name string, patch []byte) error {
			_, err := c.client.AppsV1().ControllerRevisions(owner.GetNamespace()).Patch(ctx, name,
				types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	slices.SortFunc(list, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list, err
}

// content is the data of a revision: a patch that brings the template back.
type content struct {
	Spec struct {
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

// Template returns the pod template of a revision.
func Template(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var c content
	if err := json.Unmarshal(r.Data.Raw, &c); err != nil {
		return nil, fmt.Errorf("decode revision %s: %w", r.Name, err)
	}
	return &c.Spec.Template, nil
}

func dataOf(template *corev1.PodTemplateSpec) ([]byte, error) {
	data, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// Names returns the name of a revision, apart from that of the owner, and the labels that it has in
// addition to those of the template.
type Names func(data []byte, collisions *int32) (suffix string, labels map[string]string)

// ByData names revisions of StatefulSets.
func ByData(data []byte, collisions *int32) (string, map[string]string) {
	h := fnv.New32()
	_, _ = h.Write(data) // never fails
	if collisions != nil {
		_, _ = h.Write([]byte(strconv.FormatInt(int64(*collisions), 10)))
	}
	hash := rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
	return hash, map[string]string{hashLabel: hash}
}

// ByTemplate names revisions of DaemonSets.
func ByTemplate(template *corev1.PodTemplateSpec) Names {
	return func(_ []byte, collisions *int32) (string, map[string]string) {
		hash := Hash(template, collisions)
		return hash, map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
	}
}

// State is the history of an owner.
type State struct {
	// Latest is the revision of the present template.
	Latest *appsv1.ControllerRevision
	// All are all revisions, the oldest first.
	All []*appsv1.ControllerRevision
	// Collisions is how often the name of a new revision was taken.
	Collisions *int32
}

// Latest returns the history with the revision of a template as the latest one. It makes one if
// there is none, and an old one becomes the latest again.
func (c *Control) Latest(
	ctx context.Context, owner ownerrefs.Owner, list []*appsv1.ControllerRevision,
	template *corev1.PodTemplateSpec, names Names, collisions *int32,
) (State, error) {
	data, err := dataOf(template)
	if err != nil {
		return State{}, err
	}
	client := c.client.AppsV1().ControllerRevisions(owner.GetNamespace())
	next := int64(1)
	if len(list) > 0 {
		next = list[len(list)-1].Revision + 1
	}
	for i := len(list) - 1; i >= 0; i-- {
		if !bytes.Equal(list[i].Data.Raw, data) {
			continue
		}
		if i == len(list)-1 {
			return State{list[i], list, collisions}, nil
		}
		again := list[i].DeepCopy()
		again.Revision = next
		again, err := client.Update(ctx, again, metav1.UpdateOptions{})
		if err != nil {
			return State{}, err
		}
		return State{again, append(slices.Delete(slices.Clone(list), i, i+1), again), collisions}, nil
	}
	for {
		suffix, extra := names(data, collisions)
		labels := maps.Clone(template.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, extra)
		// The name of an owner leaves space for the hash.
		name := owner.GetName()
		name = name[:min(len(name), 223)] + "-" + suffix
		made, err := client.Create(ctx, &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: owner.GetNamespace(), Labels: labels,
				Annotations:     owner.GetAnnotations(),
				OwnerReferences: []metav1.OwnerReference{owner.Reference()},
			},
			Data: runtime.RawExtension{Raw: data}, Revision: next,
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			existing, getErr := client.Get(ctx, name, metav1.GetOptions{})
			if getErr != nil {
				return State{}, getErr
			}
			// If it is or can become the owner's, the informer is behind.
			same := bytes.Equal(existing.Data.Raw, data)
			ref := metav1.GetControllerOfNoCopy(existing)
			if same && ref == nil && owner.Selector.Matches(k8slabels.Set(existing.Labels)) {
				return State{}, apierrors.NewConflict(appsv1.Resource("controllerrevisions"), name,
					errors.New("it has lost its owner and is not adopted yet"))
			}
			if same && ref != nil && ref.UID == owner.GetUID() {
				return State{existing, append(slices.Clone(list), existing), collisions}, nil
			}
			collisions = new(1 + ptr.Deref(collisions, 0))
			continue
		}
		if err != nil {
			return State{}, fmt.Errorf("create revision %s: %w", name, err)
		}
		return State{made, append(slices.Clone(list), made), collisions}, nil
	}
}

// Limit deletes the oldest revisions that are not in use, beyond the limit of the owner.
func (c *Control) Limit(
	ctx context.Context, list []*appsv1.ControllerRevision, limit *int32,
	used func(*appsv1.ControllerRevision) bool,
) error {
	unused := slices.DeleteFunc(slices.Clone(list), used)
	for _, r := range unused[:max(0, len(unused)-int(ptr.Deref(limit, defaultLimit)))] {
		err := c.client.AppsV1().ControllerRevisions(r.Namespace).Delete(ctx, r.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete revision %s: %w", r.Name, err)
		}
	}
	return nil
}
