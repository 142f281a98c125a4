package statefulsets

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/controllers/ownerrefs"
	"github.com/kinproc/kinproc/server/internal/controllers/pods"
)

// claimRetry is when to look again for a claim that is still being deleted. It causes no event.
const claimRetry = 100 * time.Millisecond

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// claimName returns the name of a pod's claim of a template.
func (p *pass) claimName(template *corev1.PersistentVolumeClaim, ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", template.Name, p.set.Name, ordinal)
}

// mount makes the volumes of a pod use its claims.
func (p *pass) mount(pod *corev1.Pod, slot int) {
	for i := range p.set.Spec.VolumeClaimTemplates {
		template := &p.set.Spec.VolumeClaimTemplates[i]
		volume := corev1.Volume{Name: template.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: p.claimName(template, p.first+slot),
			},
		}}
		pod.Spec.Volumes = append(slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == template.Name
		}), volume)
	}
}

func (p *pass) claim(name string) (*corev1.PersistentVolumeClaim, error) {
	obj, ok, err := p.claims.GetIndexer().GetByKey(cache.NewObjectName(p.set.Namespace, name).String())
	if err != nil || !ok {
		return nil, err
	}
	return obj.(*corev1.PersistentVolumeClaim), nil
}

// provideClaims makes the claims of a pod. Held is set if one of an earlier pod has to go first.
func (p *pass) provideClaims(
	ctx context.Context, pod *corev1.Pod, slot int,
) (held bool, err error) {
	for i := range p.set.Spec.VolumeClaimTemplates {
		template := &p.set.Spec.VolumeClaimTemplates[i]
		name := p.claimName(template, p.first+slot)
		existing, err := p.claim(name)
		if err != nil {
			return false, err
		}
		if existing != nil {
			if existing.DeletionTimestamp != nil || p.ofEarlierPod(existing, pod) {
				p.lookAgain(claimRetry)
				return true, nil
			}
			continue
		}
		claim := template.DeepCopy()
		claim.Name, claim.Namespace = name, p.set.Namespace
		claim.Labels = maps.Clone(claim.Labels)
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, p.set.Spec.Selector.MatchLabels)
		p.own(claim, pod, false)
		_, err = p.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim,
			metav1.CreateOptions{})
		switch {
		case apierrors.IsAlreadyExists(err): // the informer is behind
		case err != nil:
			p.Recorder.Eventf(p.set, corev1.EventTypeWarning, pods.FailedCreate,
				"Create Claim %s for Pod %s in StatefulSet %s failed error: %s", name, pod.Name,
				p.set.Name, err)
			return false, fmt.Errorf("create claim %s: %w", name, err)
		default:
			p.Recorder.Eventf(p.set, corev1.EventTypeNormal, pods.SuccessfulCreate,
				"Create Claim %s Pod %s in StatefulSet %s success", name, pod.Name, p.set.Name)
		}
	}
	return false, nil
}

// ofEarlierPod reports whether a claim goes with an earlier pod of the same name.
func (p *pass) ofEarlierPod(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == podKind.Kind && ref.Name == pod.Name && ref.UID != pod.UID
	})
}

// own gives a claim the owners with which it is to be deleted, as the set's retention policy says.
// It returns whether it had others.
func (p *pass) own(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, condemned bool) bool {
	retain := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	policy := p.set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return false
	}
	var want []metav1.OwnerReference
	switch {
	case condemned && policy.WhenScaled != retain:
		want = append(want, *metav1.NewControllerRef(pod, podKind))
	case policy.WhenDeleted != retain:
		want = append(want, *metav1.NewControllerRef(p.set, kind))
	}
	refs := slices.DeleteFunc(slices.Clone(claim.OwnerReferences),
		func(ref metav1.OwnerReference) bool {
			gv, err := schema.ParseGroupVersion(ref.APIVersion)
			ours := err == nil && (ref.Kind == kind.Kind && gv.Group == kind.Group &&
				ref.Name == p.set.Name ||
				ref.Kind == podKind.Kind && gv.Group == "" && ref.Name == pod.Name)
			return ours && !slices.ContainsFunc(want, func(w metav1.OwnerReference) bool {
				return w.UID == ref.UID
			})
		})
	for _, w := range want {
		// Somebody else's claim stays theirs.
		if !slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
			return ref.UID == w.UID || ref.Controller != nil && *ref.Controller
		}) {
			refs = append(refs, w)
		}
	}
	changed := !slices.EqualFunc(refs, claim.OwnerReferences,
		func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
	claim.OwnerReferences = refs
	return changed
}

// amendClaims gives the claims of a pod their owners.
func (p *pass) amendClaims(ctx context.Context, pod *corev1.Pod, condemned bool) error {
	n, _ := ordinal(p.set.Name, pod.Name)
	for i := range p.set.Spec.VolumeClaimTemplates {
		existing, err := p.claim(p.claimName(&p.set.Spec.VolumeClaimTemplates[i], n))
		if err != nil {
			return err
		}
		if existing == nil {
			continue
		}
		claim := existing.DeepCopy()
		if !p.own(claim, pod, condemned) {
			continue
		}
		_, err = p.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim,
			metav1.UpdateOptions{})
		if err := ownerrefs.IgnoreLag(err); err != nil {
			return fmt.Errorf("update claim %s: %w", claim.Name, err)
		}
	}
	return nil
}
