// Package podspec has the rules of pods and of whatever makes pods from a template: defaults, validation, warnings, and the fields of
// features that are off.
//
// A kind with a template calls, in this order, [SetDefaults] from its Default, [DropDisabledFields] from PrepareCreate and PrepareUpdate,
// [ValidateTemplate] with the [OptionsFor] the change, and [TemplateWarnings]:
//
//	opts := podspec.OptionsFor(&d.Spec.Template, &old.Spec.Template) // nil for old on create
//	errs = append(errs, podspec.ValidateTemplate(&d.Spec.Template, field.NewPath("spec", "template"), opts)...)
package podspec
