package legacy

import (
	"context"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/claims"
	"github.com/kinproc/kinproc/chain/core/internal/rules/nodeselectors"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/kind"
)

// mountOptionsAnnotation is the predecessor of the mountOptions field.
const mountOptionsAnnotation = "volume.beta.kubernetes.io/mount-options"

var reclaimPolicies = sets.New(corev1.PersistentVolumeReclaimDelete,
	corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)

// topologySuccessors maps beta labels to their successors. The node affinity of a volume may change
// from a beta label to its successor.
var topologySuccessors = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

// PersistentVolumes declares persistentvolumes.
func PersistentVolumes() *kind.Kind[*corev1.PersistentVolume] {
	return &kind.Kind[*corev1.PersistentVolume]{
		Plural:        "persistentvolumes",
		ShortNames:    []string{"pv"},
		ClusterScoped: true,
		Default:       defaultPersistentVolume,
		PrepareCreate: func(_ context.Context, v *corev1.PersistentVolume) {
			v.Status = corev1.PersistentVolumeStatus{
				Phase:                   corev1.VolumePending,
				LastPhaseTransitionTime: new(metav1.Now()),
			}
		},
		Validate: func(_ context.Context, v *corev1.PersistentVolume) field.ErrorList {
			return validatePersistentVolume(v, nil)
		},
		ValidateUpdate: validatePersistentVolumeUpdate,
		Table: kind.Table[*corev1.PersistentVolume]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Capacity", Description: "Capacity of the volume."},
				{Name: "Access Modes", Description: "Access modes of the volume."},
				{Name: "Reclaim Policy", Description: "What happens to the volume when its claim is deleted."},
				{Name: "Status", Description: "Phase of the volume."},
				{Name: "Claim", Description: "Claim that the volume is bound to."},
				{Name: "StorageClass", Description: "Storage class of the volume."},
				{Name: "VolumeAttributesClass", Description: "Volume attributes class of the volume."},
				{Name: "Reason", Description: "Reason for the phase of the volume."},
				kind.AgeColumn(),
				{
					Name:        "VolumeMode",
					Priority:    1,
					Description: "Whether the volume is a file system or a block device.",
				},
			},
			Row: persistentVolumeRow,
		},
		Warnings: warnPersistentVolume,
		Status: &kind.Status[*corev1.PersistentVolume]{
			Prepare: func(_ context.Context, v, old *corev1.PersistentVolume) {
				same, t := v.Status.Phase == old.Status.Phase, v.Status.LastPhaseTransitionTime
				switch {
				case same && t == nil:
					v.Status.LastPhaseTransitionTime = old.Status.LastPhaseTransitionTime
				case !same && (t == nil || t.Equal(old.Status.LastPhaseTransitionTime)):
					v.Status.LastPhaseTransitionTime = new(metav1.Now())
				}
			},
			Validate: func(_ context.Context, v, _ *corev1.PersistentVolume) field.ErrorList {
				return requireVersion(v)
			},
		},
		Quirks: kind.Quirks{NameOnUpdate: true, ReturnDeleted: true},
	}
}

func persistentVolumeRow(v *corev1.PersistentVolume) []any {
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		v.Name, size.String(), accessModesCell(v.Spec.AccessModes),
		string(v.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		storageClassCell(v, v.Spec.StorageClassName),
		attributesClassCell(v.Spec.VolumeAttributesClassName), v.Status.Reason, kind.Age(v),
		volumeModeCell(v.Spec.VolumeMode),
	}
}

// accessModesCell returns the abbreviated access modes in a fixed order, without duplicates.
func accessModesCell(modes []corev1.PersistentVolumeAccessMode) string {
	have := sets.New(modes...)
	var short []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if have.Has(m.mode) {
			short = append(short, m.short)
		}
	}
	return strings.Join(short, ",")
}

// storageClassCell returns the storage class of obj. The annotation that preceded the field takes
// precedence.
func storageClassCell(obj metav1.Object, class string) string {
	if annotated, ok := obj.GetAnnotations()[corev1.BetaStorageClassAnnotation]; ok {
		return annotated
	}
	return class
}

func attributesClassCell(class *string) string {
	if class == nil {
		return "<unset>"
	}
	return *class
}

func volumeModeCell(mode *corev1.PersistentVolumeMode) string {
	if mode == nil {
		return "<unset>"
	}
	return string(*mode)
}

// requireVersion returns an error if obj has no resource version. The status subresource of some
// kinds requires optimistic locking. A patch always has a resource version.
func requireVersion(obj metav1.Object) field.ErrorList {
	if obj.GetResourceVersion() != "" {
		return nil
	}
	return field.ErrorList{
		field.Required(field.NewPath("resourceVersion"), "must be specified for an update of the status"),
	}
}

// validatePersistentVolume validates v; old is nil for a new volume. Invalid values in the node
// affinity of v are allowed if old has some too.
func validatePersistentVolume(v, old *corev1.PersistentVolume) field.ErrorList {
	impossible := old != nil && old.Spec.NodeAffinity != nil &&
		nodeselectors.HasImpossibleValue(old.Spec.NodeAffinity.Required)
	return append(validatePersistentVolumeSpec(&v.Spec, v.Name, impossible, field.NewPath("spec")),
		validateMountOptions(v)...)
}

func validatePersistentVolumeSpec(
	spec *corev1.PersistentVolumeSpec, name string, impossibleNodes bool, at *field.Path,
) field.ErrorList {
	errs := claims.ValidateAccessModes(spec.AccessModes, at.Child("accessModes"))
	capacity := at.Child("capacity")
	if len(spec.Capacity) == 0 {
		errs = append(errs, field.Required(capacity, "must specify the storage capacity"))
	}
	if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(capacity, spec.Capacity,
			[]corev1.ResourceName{corev1.ResourceStorage}))
	}
	for r, size := range spec.Capacity {
		if size.Value() < 0 {
			errs = append(errs, field.Invalid(capacity.Key(string(r)), size.Value(),
				"must be a valid resource quantity"))
		}
		errs = append(errs, quantities.ValidatePositiveQuantity(size, capacity.Key(string(r)))...)
	}
	if p := spec.PersistentVolumeReclaimPolicy; p != "" && !reclaimPolicies.Has(p) {
		errs = append(errs, field.NotSupported(at.Child("persistentVolumeReclaimPolicy"), p,
			sets.List(reclaimPolicies)))
	}
	if a := spec.NodeAffinity; a != nil {
		required := at.Child("nodeAffinity", "required")
		if a.Required == nil {
			errs = append(errs, field.Required(required, "must specify which nodes can access the volume"))
		} else {
			errs = append(errs, nodeselectors.Validate(a.Required, impossibleNodes, required)...)
		}
	}
	errs = append(errs, validatePersistentVolumeSource(spec, name, at)...)
	// Recycling would delete all files of the node.
	if p := spec.HostPath; p != nil && path.Clean(p.Path) == "/" &&
		spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"),
			"may not be Recycle for the root directory of a node"))
	}
	if spec.StorageClassName != "" {
		errs = append(errs, invalidName(at.Child("storageClassName"), spec.StorageClassName)...)
	}
	errs = append(errs, claims.ValidateVolumeMode(spec.VolumeMode, at.Child("volumeMode"))...)
	return append(errs, validateVolumeAttributesClass(spec, at)...)
}

func validateVolumeAttributesClass(
	spec *corev1.PersistentVolumeSpec, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if class := spec.VolumeAttributesClassName; class != nil {
		if *class == "" {
			errs = append(errs, field.Required(at.Child("volumeAttributesClassName"),
				"must not be empty; omit it for no class"))
		} else {
			errs = append(errs, invalidName(at.Child("volumeAttributesClassName"), *class)...)
		}
		if spec.CSI == nil {
			errs = append(errs, field.Required(at.Child("csi"),
				"must be set if volumeAttributesClassName is set"))
		}
	}
	return errs
}

func validatePersistentVolumeUpdate(
	_ context.Context, v, old *corev1.PersistentVolume,
) field.ErrorList {
	errs := validatePersistentVolume(v, old)

	source := v.Spec.PersistentVolumeSource.DeepCopy()
	if source.CSI != nil && old.Spec.CSI != nil && old.Spec.CSI.ControllerExpandSecretRef == nil {
		source.CSI.ControllerExpandSecretRef = nil // the secret may be added
	}
	if !equality.Semantic.DeepEqual(*source, old.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"the volume source is immutable after creation"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(v.Spec.VolumeMode, old.Spec.VolumeMode,
		field.NewPath("volumeMode"))...)
	if old.Spec.NodeAffinity != nil &&
		!sameVolumeAffinity(v.Spec.NodeAffinity, old.Spec.NodeAffinity) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), v.Spec.NodeAffinity,
			"is immutable, except that beta topology labels may be replaced by their successors"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"),
			"cannot be unset"))
	}
	return errs
}

// sameVolumeAffinity reports whether affinity equals old, except that beta topology labels may be
// replaced by their successors. Like kube-apiserver, which is lax here, it also allows any other
// key to be replaced by an empty one.
func sameVolumeAffinity(affinity, old *corev1.VolumeNodeAffinity) bool {
	same := equality.Semantic.Copy()
	err := same.AddFunc(func(r, was corev1.NodeSelectorRequirement) bool {
		if r.Key == topologySuccessors[was.Key] {
			was.Key = r.Key
		}
		return equality.Semantic.DeepEqual(r, was)
	})
	return err == nil && same.DeepEqual(affinity, old)
}

// invalidName returns an error for each reason why a text is not the name of an object.
func invalidName(path *field.Path, name string) field.ErrorList {
	return rules.Invalid(path, name, apivalidation.NameIsDNSSubdomain(name, false))
}

func warnPersistentVolume(_ context.Context, v, _ *corev1.PersistentVolume) []string {
	var warnings []string
	annotations := field.NewPath("metadata", "annotations")
	if _, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		warnings = append(warnings, fmt.Sprintf("%s: deprecated since v1.8 in favour of storageClassName",
			annotations.Key(corev1.BetaStorageClassAnnotation)))
	}
	if _, ok := v.Annotations[mountOptionsAnnotation]; ok {
		warnings = append(warnings, fmt.Sprintf("%s: deprecated since v1.31 in favour of mountOptions",
			annotations.Key(mountOptionsAnnotation)))
	}
	spec := field.NewPath("spec")
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warnings = append(warnings,
			fmt.Sprintf("%s: Recycle is deprecated; use dynamic provisioning instead",
				spec.Child("persistentVolumeReclaimPolicy")))
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			at := spec.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i)
			warnings = append(warnings, nodeselectors.TermWarnings(&a.Required.NodeSelectorTerms[i],
				false, at)...)
		}
	}
	return append(warnings, warnVolumeSource(&v.Spec, spec)...)
}

// ValidateInlineVolume validates the spec of an inline volume, which a VolumeAttachment may have in
// place of the name of a PersistentVolume. An inline volume must be a CSI volume and may not set
// fields that only apply to a PersistentVolume object.
func ValidateInlineVolume(spec *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, set := range map[string]bool{
		"claimRef": spec.ClaimRef != nil,
		"capacity": len(spec.Capacity) > 0,
		"persistentVolumeReclaimPolicy": spec.PersistentVolumeReclaimPolicy != "" &&
			spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain,
		"nodeAffinity":     spec.NodeAffinity != nil,
		"storageClassName": spec.StorageClassName != "",
		"volumeMode": spec.VolumeMode != nil &&
			*spec.VolumeMode != corev1.PersistentVolumeFilesystem,
	} {
		if set {
			errs = append(errs, field.Forbidden(at.Child(name), "may not be specified for an inline volume"))
		}
	}
	if spec.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "an inline volume must be a CSI volume"))
	}
	errs = append(errs, claims.ValidateAccessModes(spec.AccessModes, at.Child("accessModes"))...)
	return append(errs, validatePersistentVolumeSource(spec, "", at)...)
}
