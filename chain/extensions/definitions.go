package extensions

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

// definitions refuses definitions on which apiextensions-apiserver's validation panics. It has to come first, with the
// plugins that change objects, for those that judge them run after validation.
type definitions struct{}

var _ admission.MutationInterface = definitions{}

func (definitions) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

func (definitions) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	definition, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil
	}
	if errs := checkSelectableFields(&definition.Spec); len(errs) > 0 {
		return apierrors.NewInvalid(apiextensions.Kind("CustomResourceDefinition"), definition.Name, errs)
	}
	return nil
}

// checkSelectableFields refuses selectable fields without a schema that the validation can look for them in.
func checkSelectableFields(spec *apiextensions.CustomResourceDefinitionSpec) field.ErrorList {
	var errs field.ErrorList
	check := func(fields []apiextensions.SelectableField, validation *apiextensions.CustomResourceValidation, path *field.Path) {
		if len(fields) == 0 || validation == nil { // which the validation refuses itself
			return
		}
		path = path.Child("schema", "openAPIV3Schema")
		if validation.OpenAPIV3Schema == nil {
			errs = append(errs, field.Required(path, "selectableFields must be fields of it"))
		} else if _, err := structuralschema.NewStructural(validation.OpenAPIV3Schema); err != nil {
			errs = append(errs, field.Invalid(path, "", err.Error()))
		}
	}
	versions := field.NewPath("spec", "versions")
	// What all versions have in common is not in them, but on top.
	check(spec.SelectableFields, spec.Validation, versions.Index(0))
	for i, v := range spec.Versions {
		check(v.SelectableFields, v.Schema, versions.Index(i))
	}
	return errs
}
