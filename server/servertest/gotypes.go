package servertest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/reflected"
)

// GoType is one version of a kind of custom resources, as a Go type. See [GoTypes].
type GoType struct {
	// GroupVersion is the API group and the version, both required.
	GroupVersion schema.GroupVersion
	// Object has the type, such as &v1.CronTab{}. The name of the type is that of the kind.
	Object runtime.Object

	// Plural is the name of the resource. If it is empty, it is the kind in lower case with an
	// ending: crontabs, policies, classes.
	Plural string
	// ClusterScoped is whether the objects are in no namespace. The versions of a kind must agree.
	ClusterScoped bool
	// Stored is whether objects are stored in this version. If no version of a kind is marked, the
	// first one is stored.
	Stored bool
}

// GoTypes is the source of CRDs that are made from Go types:
//
//	servertest.CRDs(t, s, servertest.GoTypes(
//		servertest.GoType{GroupVersion: v1.GroupVersion, Object: &v1.CronTab{}}))
//
// Types of the same kind and group are versions of one CRD. A kind whose type has a field
// "status" gets the subresource status.
//
// The schema has the fields that [encoding/json] writes, with their types. A field is required
// unless it is a pointer or its tag says omitempty or omitzero. Fields of the type
// [runtime.RawExtension] or any, fields whose type contains itself, and types that marshal
// themselves accept everything.
//
// That is what controller-gen makes of a type without markers, but it requires pointers without
// omitempty too, and it drops most of the metadata in a pod template and the like unless it is told
// not to. Comments such as +optional, +listType=map, +kubebuilder:validation:Minimum=1 and
// +kubebuilder:default=… are not in a Go type, so the CRD has no defaults, no limits and
// no printer columns, and server-side apply replaces lists as a whole. A test that needs those
// installs the manifests that controller-gen writes, with [Files].
func GoTypes(types ...GoType) Source {
	return Source{func() ([]*unstructured.Unstructured, error) {
		var definitions []*apiextensionsv1.CustomResourceDefinition
		for _, t := range types {
			made, err := t.definition()
			if err != nil {
				return nil, fmt.Errorf("CRD of %T: %w", t.Object, err)
			}
			i := slices.IndexFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool {
				return d.Spec.Group == made.Spec.Group && d.Spec.Names.Kind == made.Spec.Names.Kind
			})
			if i < 0 {
				definitions = append(definitions, made)
				continue
			}
			if err := addVersion(definitions[i], made); err != nil {
				return nil, fmt.Errorf("CRD of %T: %w", t.Object, err)
			}
		}
		var all []*unstructured.Unstructured
		for _, d := range definitions {
			if err := chooseStored(d); err != nil {
				return nil, fmt.Errorf("CRD %s: %w", d.Name, err)
			}
			u, err := fromObject(d)
			if err != nil {
				return nil, err
			}
			all = append(all, u)
		}
		return all, nil
	}}
}

// definition returns the CRD of a kind with one version.
func (t GoType) definition() (*apiextensionsv1.CustomResourceDefinition, error) {
	if t.GroupVersion.Group == "" || t.GroupVersion.Version == "" {
		return nil, fmt.Errorf("the GroupVersion %q has no group or no version", t.GroupVersion)
	}
	of := reflect.TypeOf(t.Object)
	if of == nil || of.Kind() != reflect.Pointer || of.Elem().Kind() != reflect.Struct {
		return nil, errors.New("the Object is not a pointer to a struct")
	}
	object, err := objectSchema(of.Elem())
	if err != nil {
		return nil, err
	}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: t.GroupVersion.Version, Served: true, Storage: t.Stored,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: object},
	}
	if _, ok := object.Properties["status"]; ok {
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{
			Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
		}
	}
	kind := of.Elem().Name()
	plural, singular := meta.UnsafeGuessKindToResource(t.GroupVersion.WithKind(kind))
	if t.Plural != "" {
		plural.Resource = t.Plural
	}
	scope := apiextensionsv1.NamespaceScoped
	if t.ClusterScoped {
		scope = apiextensionsv1.ClusterScoped
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural.Resource + "." + t.GroupVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: t.GroupVersion.Group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: kind, ListKind: kind + "List",
				Plural: plural.Resource, Singular: singular.Resource,
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version},
		},
	}, nil
}

// objectSchema returns the schema of a type of Kubernetes objects. The API server has its own for
// metadata, and allows no other here.
func objectSchema(t reflect.Type) (*apiextensionsv1.JSONSchemaProps, error) {
	object, err := reflected.Structural(t)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if object.Properties[name].Type != "string" {
			return nil, errors.New("the type does not embed metav1.TypeMeta")
		}
	}
	if _, ok := object.Properties["metadata"]; !ok {
		return nil, errors.New("the type does not embed metav1.ObjectMeta as metadata")
	}
	object.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
	object.Required = slices.DeleteFunc(object.Required,
		func(name string) bool { return name == "metadata" })
	return object, nil
}

// addVersion adds the version of another CRD of the same kind.
func addVersion(d, other *apiextensionsv1.CustomResourceDefinition) error {
	added := other.Spec.Versions[0]
	switch {
	case other.Name != d.Name:
		return fmt.Errorf("it is named %s, and another version %s", other.Name, d.Name)
	case other.Spec.Scope != d.Spec.Scope:
		return fmt.Errorf("its scope is %s, and that of another version %s", other.Spec.Scope,
			d.Spec.Scope)
	case slices.ContainsFunc(d.Spec.Versions,
		func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == added.Name }):
		return fmt.Errorf("there is another type for %s", added.Name)
	}
	d.Spec.Versions = append(d.Spec.Versions, added)
	return nil
}

// chooseStored makes the first version the stored one, unless one is already.
func chooseStored(d *apiextensionsv1.CustomResourceDefinition) error {
	var stored []string
	for _, v := range d.Spec.Versions {
		if v.Storage {
			stored = append(stored, v.Name)
		}
	}
	if len(stored) > 1 {
		return fmt.Errorf("more than one version is stored: %s", strings.Join(stored, ", "))
	}
	if len(stored) == 0 {
		d.Spec.Versions[0].Storage = true
	}
	return nil
}
