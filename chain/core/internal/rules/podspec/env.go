package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
	"github.com/kinproc/kinproc/chain/features"
)

func (v *validator) validateEnv(env []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range env {
		at := path.Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, rules.Invalid(at.Child("name"), e.Name,
				validation.IsRelaxedEnvVarName(e.Name))...)
		}
		if e.ValueFrom != nil {
			errs = append(errs, v.validateValueFrom(&e, at.Child("valueFrom"))...)
		}
	}
	return errs
}

func (v *validator) validateValueFrom(e *corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	from, sources := e.ValueFrom, 0
	if from.FieldRef != nil {
		sources++
		errs = append(errs, validateFieldRef(from.FieldRef, envFields(), path.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		errs = append(errs, validateResourceRef(from.ResourceFieldRef, false,
			path.Child("resourceFieldRef"))...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		sources++
		errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("configMapKeyRef"))...)
	}
	if r := from.SecretKeyRef; r != nil {
		sources++
		errs = append(errs, validateKeyRef(r.Name, r.Key, path.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		sources++
		errs = append(errs, validateFileRef(from.FileKeyRef, path.Child("fileKeyRef"))...)
	}
	last := "`configMapKeyRef` or `secretKeyRef`"
	if v.opts.envFiles || v.on(features.EnvFiles) {
		last = "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, "+last))
	case e.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not specify more than one source"))
	}
	return errs
}

func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	errs := rules.Invalid(path.Child("name"), name, apivalidation.NameIsDNSSubdomain(name, false))
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, rules.Invalid(path.Child("key"), key, validation.IsConfigMapKey(key))...)
}

func validateFileRef(ref *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	errs := required(path.Child("key"), ref.Key)
	if ref.Key != "" {
		errs = append(errs, rules.Invalid(path.Child("key"), ref.Key,
			validation.IsRelaxedEnvVarName(ref.Key))...)
	}
	errs = append(errs, required(path.Child("volumeName"), ref.VolumeName)...)
	if ref.VolumeName != "" {
		errs = append(errs, rules.Invalid(path.Child("volumeName"), ref.VolumeName,
			validation.IsDNS1123Label(ref.VolumeName))...)
	}
	errs = append(errs, required(path.Child("path"), ref.Path)...)
	return append(errs, volumesources.ValidateNoBacksteps(ref.Path, path.Child("path"))...)
}

// validateFileRefVolumes requires environment variables to refer only to files in emptyDir volumes,
// which containers share.
func (v *validator) validateFileRefVolumes(path *field.Path) field.ErrorList {
	shared := map[string]bool{}
	for _, volume := range v.spec.Volumes {
		shared[volume.Name] = volume.EmptyDir != nil
	}
	var errs field.ErrorList
	eachContainer(v.spec, func(c *corev1.Container, p *field.Path) {
		for i, e := range c.Env {
			if e.ValueFrom == nil || e.ValueFrom.FileKeyRef == nil {
				continue
			}
			name := e.ValueFrom.FileKeyRef.VolumeName
			at := below(path, p).Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			if is, ok := shared[name]; !ok {
				errs = append(errs, field.NotFound(at, name))
			} else if !is {
				errs = append(errs, field.Invalid(at, name, "must be an emptyDir volume"))
			}
		}
	})
	return errs
}

func validateEnvFrom(list []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range list {
		at := path.Index(i)
		if e.Prefix != "" {
			errs = append(errs, rules.Invalid(at.Child("prefix"), e.Prefix,
				validation.IsRelaxedEnvVarName(e.Prefix))...)
		}
		check := func(name string, p *field.Path) {
			if name == "" {
				errs = append(errs, field.Required(p.Child("name"), ""))
			} else {
				errs = append(errs, rules.Invalid(p.Child("name"), name,
					apivalidation.NameIsDNSSubdomain(name, true))...)
			}
		}
		if e.ConfigMapRef != nil {
			check(e.ConfigMapRef.Name, at.Child("configMapRef"))
		}
		if e.SecretRef != nil {
			check(e.SecretRef.Name, at.Child("secretRef"))
		}
		// As in kube-apiserver, the path of these errors is the list, not the entry.
		switch {
		case e.ConfigMapRef == nil && e.SecretRef == nil:
			errs = append(errs, field.Invalid(path, "", "must specify either configMapRef or secretRef"))
		case e.ConfigMapRef != nil && e.SecretRef != nil:
			errs = append(errs, field.Invalid(path, "", "may not specify both configMapRef and secretRef"))
		}
	}
	return errs
}

// envFields returns the pod fields that environment variables can refer to.
func envFields() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

// volumeFields returns the pod fields that files in volumes can refer to.
func volumeFields() []string {
	return []string{
		"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
	}
}

// downwardFields returns all pod fields that the downward API supports anywhere.
func downwardFields() []string {
	return append(envFields(), "metadata.annotations", "metadata.labels", "spec.restartPolicy",
		"spec.schedulerName", "status.phase", "spec.host")
}

func validateFieldRef(
	ref *corev1.ObjectFieldSelector, fields []string, path *field.Path,
) field.ErrorList {
	at := path.Child("fieldPath")
	switch {
	case ref.APIVersion == "":
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	case ref.FieldPath == "":
		return field.ErrorList{field.Required(at, "")}
	}
	name, key, subscripted := splitSubscript(ref.FieldPath)
	ofMap := name == "metadata.annotations" || name == "metadata.labels"
	if ref.APIVersion != "v1" || subscripted && !ofMap || !slices.Contains(downwardFields(), name) {
		return field.ErrorList{field.Invalid(at, ref.FieldPath,
			"is not a field of a "+ref.APIVersion+" pod that the downward API supports")}
	}
	if name == "spec.host" {
		name = "spec.nodeName"
	}
	switch {
	case subscripted && name == "metadata.annotations":
		// Annotation keys are validated regardless of case.
		return rules.Invalid(path, key, validation.IsQualifiedName(strings.ToLower(key)))
	case subscripted:
		return rules.Invalid(path, key, validation.IsQualifiedName(key))
	}
	return supported(at, name, fields...)
}

// splitSubscript splits paths such as metadata.labels['app'] into a name and a key.
func splitSubscript(path string) (name, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	name, key, ok = strings.Cut(rest, "['")
	if !ok || name == "" {
		return path, "", false
	}
	return name, key, true
}

func validateResourceRef(
	ref *corev1.ResourceFieldSelector, volume bool, path *field.Path,
) field.ErrorList {
	side, name, _ := strings.Cut(ref.Resource, ".")
	known := []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu",
		"requests.ephemeral-storage", "requests.memory",
	}
	isKnown := slices.Contains(known, ref.Resource) || (side == "limits" || side == "requests") &&
		strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)

	var errs field.ErrorList
	switch {
	case volume && ref.ContainerName == "":
		errs = append(errs, field.Required(path.Child("containerName"), ""))
	case ref.Resource == "":
		errs = append(errs, field.Required(path.Child("resource"), ""))
	case !isKnown:
		errs = append(errs, field.NotSupported(path.Child("resource"), ref.Resource, known))
	}
	if !isKnown || ref.Divisor.IsZero() {
		return errs
	}
	divisors := []string{
		"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
	}
	if name == "cpu" {
		divisors = []string{"1m", "1"}
	}
	if !slices.Contains(divisors, ref.Divisor.String()) {
		errs = append(errs, field.Invalid(path.Child("divisor"), ref.Divisor.String(),
			"must be one of "+strings.Join(divisors, ", ")))
	}
	return errs
}
