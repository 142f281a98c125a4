package storage

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/legacy"
	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

// maxErrorSize is the maximum length of the message of an attach or detach error in bytes.
const maxErrorSize = 1024

// VolumeAttachments declares volumeattachments.
func VolumeAttachments() *kind.Kind[*storagev1.VolumeAttachment] {
	return &kind.Kind[*storagev1.VolumeAttachment]{
		Plural:        "volumeattachments",
		ClusterScoped: true,
		Default: func(a *storagev1.VolumeAttachment) {
			if inline := a.Spec.Source.InlineVolumeSpec; inline != nil {
				legacy.DefaultInlineVolume(inline)
			}
		},
		Validate: func(_ context.Context, a *storagev1.VolumeAttachment) field.ErrorList {
			return validateAttachment(a)
		},
		ValidateUpdate: validateAttachmentUpdate,
		Table: kind.Table[*storagev1.VolumeAttachment]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Attacher", Format: "name", Description: "The driver that attaches the volume."},
				{Name: "PV", Description: "The persistent volume."},
				{Name: "Node", Description: "The node to which the volume is attached."},
				{Name: "Attached", Type: "boolean", Description: "Whether the volume is attached."},
				kind.AgeColumn(),
			},
			Row: func(a *storagev1.VolumeAttachment) []any {
				volume := ""
				if name := a.Spec.Source.PersistentVolumeName; name != nil {
					volume = *name
				}
				return []any{a.Name, a.Spec.Attacher, volume, a.Spec.NodeName, a.Status.Attached, kind.Age(a)}
			},
		},
		Status: &kind.Status[*storagev1.VolumeAttachment]{
			// Attachers have few permissions, so a status update changes nothing but the status.
			Prepare: func(_ context.Context, a, old *storagev1.VolumeAttachment) {
				metav1.ResetObjectMetaForStatus(&a.ObjectMeta, &old.ObjectMeta)
				dropErrorCode(a.Status.AttachError, old.Status.AttachError)
				dropErrorCode(a.Status.DetachError, old.Status.DetachError)
			},
			Validate:    validateAttachmentUpdate,
			ResetFields: []string{"metadata", "spec"},
		},
		RequireResourceVersion: true,
		Quirks: kind.Quirks{
			NameOnUpdate:       true,
			StatusNameOnUpdate: true,
			ReturnDeleted:      true,
		},
	}
}

// dropErrorCode clears the code of an error if its feature is off, unless the old error has one.
func dropErrorCode(e, old *storagev1.VolumeError) {
	if e == nil {
		return
	}
	if old == nil {
		old = &storagev1.VolumeError{}
	}
	features.DropField(features.MutableCSINodeAllocatableCount, &e.ErrorCode, old.ErrorCode)
}

func validateAttachmentUpdate(
	_ context.Context, a, old *storagev1.VolumeAttachment,
) field.ErrorList {
	return append(validateAttachment(a),
		apivalidation.ValidateImmutableField(a.Spec, old.Spec, field.NewPath("spec"))...)
}

func validateAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	spec := field.NewPath("spec")
	errs := volumesources.ValidateCSIDriverName(a.Spec.Attacher, spec.Child("attacher"))

	at := spec.Child("source")
	switch name, inline := a.Spec.Source.PersistentVolumeName, a.Spec.Source.InlineVolumeSpec; {
	case name == nil && inline == nil:
		errs = append(errs, field.Required(at,
			"must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case name != nil && inline != nil:
		errs = append(errs, field.Forbidden(at,
			"may not have both persistentVolumeName and inlineVolumeSpec"))
	case inline != nil:
		errs = append(errs, legacy.ValidateInlineVolume(inline, at.Child("inlineVolumeSpec"))...)
	case *name == "":
		errs = append(errs, field.Required(at.Child("persistentVolumeName"), "must name a volume"))
	}
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		errs = append(errs, rules.Invalid(at.Child("persistentVolumeName"), *name,
			apivalidation.NameIsDNSSubdomain(*name, false))...)
	}
	errs = append(errs, rules.Invalid(spec.Child("nodeName"), a.Spec.NodeName,
		apivalidation.NameIsDNSSubdomain(a.Spec.NodeName, false))...)

	status := field.NewPath("status")
	errs = append(errs, validateAttachmentMetadata(a.Status.AttachmentMetadata,
		status.Child("attachmentMetadata"))...)
	errs = append(errs, validateVolumeError(a.Status.AttachError, status.Child("attachError"))...)
	return append(errs, validateVolumeError(a.Status.DetachError, status.Child("detachError"))...)
}

func validateAttachmentMetadata(metadata map[string]string, at *field.Path) field.ErrorList {
	size := 0
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	if size <= maxParametersSize {
		return nil
	}
	return field.ErrorList{field.TooLong(at, "" /* not the metadata */, maxParametersSize)}
}

func validateVolumeError(e *storagev1.VolumeError, at *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxErrorSize {
		errs = append(errs, field.TooLong(at.Child("message"), "" /* not the message */, maxErrorSize))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(at.Child("errorCode"), *e.ErrorCode,
			fmt.Sprintf("must be a gRPC status code, not %d", *e.ErrorCode)))
	}
	return errs
}
