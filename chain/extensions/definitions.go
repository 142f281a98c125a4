package extensions

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// definitions is an admission plugin that refuses the CRDs on which
// apiextensions-apiserver's validation panics. It runs as a mutating plugin, because validating
// plugins run after the validation.
type definitions struct{}

var _ admission.MutationInterface = definitions{}

func (definitions) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

func (definitions) Admit(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	definition, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil
	}
	if a.GetSubresource() == "status" {
		if who := a.GetUserInfo(); who != nil && who.GetName() == user.APIServerUser {
			establish(definition)
		}
		return nil
	}
	if errs := checkSelectableFields(&definition.Spec); len(errs) > 0 {
		return apierrors.NewInvalid(apiextensions.Kind("CustomResourceDefinition"), definition.Name, errs)
	}
	return nil
}

// establish makes a CRD established in the same step in which a controller accepts its
// names. apiextensions-apiserver has another controller for that, to which other API servers get
// time to learn of the names. That would be another write of the whole CRD, with its schemas
// and managed fields.
func establish(definition *apiextensions.CustomResourceDefinition) {
	established := apiextensions.FindCRDCondition(definition, apiextensions.Established)
	if established == nil || established.Status != apiextensions.ConditionFalse ||
		established.Reason != "Installing" ||
		!apiextensions.IsCRDConditionTrue(definition, apiextensions.NamesAccepted) ||
		// the controller also checks the conversion webhook
		(definition.Spec.Conversion != nil && definition.Spec.Conversion.WebhookClientConfig != nil) {
		return
	}
	established.Status = apiextensions.ConditionTrue
	established.Reason = "InitialNamesAccepted"
}

// checkSelectableFields requires a structural schema for selectable fields, in which the validation
// looks them up.
func checkSelectableFields(spec *apiextensions.CustomResourceDefinitionSpec) field.ErrorList {
	var errs field.ErrorList
	check := func(
		fields []apiextensions.SelectableField, validation *apiextensions.CustomResourceValidation,
		path *field.Path,
	) {
		// the validation itself refuses fields without a schema
		if len(fields) == 0 || validation == nil {
			return
		}
		path = path.Child("schema", "openAPIV3Schema")
		if validation.OpenAPIV3Schema == nil {
			errs = append(errs, field.Required(path,
				"required with selectableFields, which must be fields of the schema"))
		} else if _, err := structuralschema.NewStructural(validation.OpenAPIV3Schema); err != nil {
			errs = append(errs, field.Invalid(path, "", err.Error()))
		}
	}
	versions := field.NewPath("spec", "versions")
	// What all versions have in common is at the top level, not in the versions.
	check(spec.SelectableFields, spec.Validation, versions.Index(0))
	for i, v := range spec.Versions {
		check(v.SelectableFields, v.Schema, versions.Index(i))
	}
	return errs
}
