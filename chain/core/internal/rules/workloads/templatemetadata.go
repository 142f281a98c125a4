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

// ValidateTemplateMetadata validates the metadata of a template that uses only labels and
// annotations, such as the templates of volume claims and resource claims. All other fields are
// rejected.
func ValidateTemplateMetadata(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(meta.Annotations, path.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(meta.Labels, path.Child("labels"))...)
	used := sets.New("Labels", "Annotations")
	value := reflect.ValueOf(*meta)
	for i := range value.NumField() {
		name := value.Type().Field(i).Name
		// An empty list that is not nil counts as set.
		if !used.Has(name) && !value.Field(i).IsZero() {
			name = strings.ToLower(name[:1]) + name[1:] // uID, as in kube-apiserver
			errs = append(errs, field.Forbidden(path.Child(name), "may not be set in a template"))
		}
	}
	return errs
}
