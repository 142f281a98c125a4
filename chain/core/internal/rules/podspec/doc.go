// Package podspec implements the rules for pods and pod templates: defaults, validation, warnings,
// and clearing the fields of disabled features.
//
// A kind with a pod template calls [SetDefaults] from its Default, [DropDisabledFields] from
// PrepareCreate and PrepareUpdate, [ValidateTemplate] with the options from [OptionsFor], and
// [TemplateWarnings], in this order:
//
//	opts := podspec.OptionsFor(&d.Spec.Template, &old.Spec.Template) // nil for old on create
//	path := field.NewPath("spec", "template")
//	errs = append(errs, podspec.ValidateTemplate(&d.Spec.Template, path, opts)...)
package podspec
