package workloads

import (
	"reflect"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateTemplateMetadata checks the metadata of a template of which only labels and annotations are used: claim templates, of storage
// and of devices, refuse the rest.
func ValidateTemplateMetadata(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(meta.Annotations, path.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(meta.Labels, path.Child("labels"))...)
	used := sets.New("Labels", "Annotations")
	value := reflect.ValueOf(*meta)
	for i := range value.NumField() {
		name := value.Type().Field(i).Name
		// Lists may be empty and yet not nil, which is set too.
		if !used.Has(name) && !value.Field(i).IsZero() {
			name = strings.ToLower(name[:1]) + name[1:] // uID, as kube-apiserver has it
			errs = append(errs, field.Forbidden(path.Child(name), "is not used"))
		}
	}
	return errs
}
