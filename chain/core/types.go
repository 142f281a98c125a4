package core

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder3"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/kinproc/kinproc/chain/core/internal/definitions"
)

// models are the OpenAPI definitions of the built-in kinds, and what is made from them. They depend
// on Go types only, so the process shares them.
var models struct {
	naming sync.Once
	names  *openapinamer.DefinitionNamer

	referring   sync.Once
	definitions func() map[string]openapicommon.OpenAPIDefinition

	// building is held while type converters or documents are built from the definitions, because
	// the builder of type converters changes the extensions of definitions.
	building sync.Mutex

	converters sync.Map // by OpenAPI name, func() (*kindConverter, error)
}

// definitionNames returns the names of the definitions of all built-in kinds.
func definitionNames(scheme *runtime.Scheme) *openapinamer.DefinitionNamer {
	models.naming.Do(func() { models.names = openapinamer.NewDefinitionNamer(scheme) })
	return models.names
}

// definitionsLater returns no definitions, but remembers how they refer to each other, so that
// withDefinitions can make them. It must be called before.
func definitionsLater(
	ref openapicommon.ReferenceCallback,
) map[string]openapicommon.OpenAPIDefinition {
	models.referring.Do(func() {
		models.definitions = sync.OnceValue(func() map[string]openapicommon.OpenAPIDefinition {
			return definitions.GetOpenAPIDefinitions(ref)
		})
	})
	return nil
}

// withDefinitions returns the configuration with the definitions of all built-in kinds. Making the
// definitions takes 15 to 20 ms of CPU, so they are made when a document or a type converter is
// built from them.
func withDefinitions(config *openapicommon.OpenAPIV3Config) *openapicommon.OpenAPIV3Config {
	whole := *config
	whole.Definitions = models.definitions()
	return &whole
}

// lazyTypes converts objects for managed fields. It builds the OpenAPI definitions of a kind when
// it first sees an object of that kind: all kinds together take about 15 ms, one kind well under a
// millisecond.
type lazyTypes struct {
	config *openapicommon.OpenAPIV3Config
	names  func() (map[schema.GroupVersionKind]string, error) // OpenAPI names of the types
	// for conversion from typed values, which needs no schema
	values managedfields.TypeConverter
}

func newLazyTypes(
	config *openapicommon.OpenAPIV3Config, names func() (map[schema.GroupVersionKind]string, error),
) *lazyTypes {
	return &lazyTypes{
		config: config,
		names:  sync.OnceValues(names),
		values: managedfields.NewDeducedTypeConverter(),
	}
}

func (l *lazyTypes) ObjectToTyped(
	obj runtime.Object, options ...typed.ValidationOptions,
) (*typed.TypedValue, error) {
	c, err := l.converter(obj.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return c.ObjectToTyped(obj, options...)
}

func (l *lazyTypes) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return l.values.TypedToObject(value)
}

func (l *lazyTypes) converter(gvk schema.GroupVersionKind) (*kindConverter, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	name, ok := names[gvk]
	if !ok {
		// its error makes the field manager drop managedFields entries of this version
		return newKindConverter(nil)
	}
	make, ok := models.converters.Load(name)
	if !ok {
		make, _ = models.converters.LoadOrStore(name,
			sync.OnceValues(func() (*kindConverter, error) {
				models.building.Lock()
				defer models.building.Unlock()
				definitions, err := builder3.BuildOpenAPIDefinitionsForResources(withDefinitions(l.config),
					name)
				if err != nil {
					return nil, err
				}
				return newKindConverter(definitions)
			}))
	}
	return make.(func() (*kindConverter, error))()
}

// kindConverter converts objects of one kind.
type kindConverter struct {
	managedfields.TypeConverter
	parsed atomic.Pointer[typed.ParseableType] // set once an object has been converted
}

func newKindConverter(definitions map[string]*spec.Schema) (*kindConverter, error) {
	converter, err := managedfields.NewTypeConverter(definitions, false)
	return &kindConverter{TypeConverter: converter}, err
}

// ObjectToTyped does not check that an object of a Go type has the schema that was made from the
// type. The check takes a third of the time of an update's managed fields. What it can find, the
// comparison of two objects finds too: lists whose items lack their keys.
func (c *kindConverter) ObjectToTyped(
	obj runtime.Object, options ...typed.ValidationOptions,
) (*typed.TypedValue, error) {
	_, untyped := obj.(runtime.Unstructured)
	parsed := c.parsed.Load()
	if parsed == nil || untyped || !slices.Contains(options, typed.AllowDuplicates) {
		object, err := c.TypeConverter.ObjectToTyped(obj, options...)
		if err == nil && parsed == nil {
			c.parsed.Store(&typed.ParseableType{Schema: object.Schema(), TypeRef: object.TypeRef()})
		}
		return object, err
	}
	v, err := value.NewValueReflect(obj)
	if err != nil {
		return nil, fmt.Errorf("convert a %T: %w", obj, err)
	}
	return typed.AsTypedUnvalidated(v, parsed.Schema, parsed.TypeRef), nil
}
