package apps

import (
	"context"
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind"
)

// ControllerRevisions declares controllerrevisions, the recorded states of stateful sets and daemon
// sets.
func ControllerRevisions() *kind.Kind[*appsv1.ControllerRevision] {
	return &kind.Kind[*appsv1.ControllerRevision]{
		Plural: "controllerrevisions",
		Validate: func(_ context.Context, r *appsv1.ControllerRevision) field.ErrorList {
			return append(validateData(r.Data), validateRevision(r)...)
		},
		ValidateUpdate: func(_ context.Context, r, old *appsv1.ControllerRevision) field.ErrorList {
			return append(validateRevision(r),
				apivalidation.ValidateImmutableField(r.Data, old.Data, field.NewPath("data"))...)
		},
		Table: kind.Table[*appsv1.ControllerRevision]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Controller", Description: "Workload that the revision belongs to."},
				{Name: "Revision", Description: "Number of the revision; the highest is the latest."},
				kind.AgeColumn(),
			},
			Row: func(r *appsv1.ControllerRevision) []any {
				return []any{r.Name, controllerCell(r), r.Revision, kind.Age(r)}
			},
		},
		Quirks: kind.Quirks{NameOnUpdate: true},
	}
}

func validateRevision(r *appsv1.ControllerRevision) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(r.Revision, field.NewPath("revision"))
}

// validateData requires a JSON object, which is what readers of revisions expect.
func validateData(data runtime.RawExtension) field.ErrorList {
	path := field.NewPath("data")
	if data.Raw == nil {
		return field.ErrorList{field.Required(path, "must be a JSON object")}
	}
	var value any
	if err := json.Unmarshal(data.Raw, &value); err != nil {
		return field.ErrorList{field.Invalid(path, "<data>", err.Error())}
	}
	if _, ok := value.(map[string]any); !ok {
		return field.ErrorList{field.Required(path, "must be a JSON object")}
	}
	return nil
}

// controllerCell returns the controller in the form kind.group/name.
func controllerCell(r *appsv1.ControllerRevision) string {
	ref := metav1.GetControllerOf(r)
	if ref == nil {
		return "<none>"
	}
	gk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	return strings.ToLower(gk.String()) + "/" + ref.Name
}
