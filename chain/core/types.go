package core

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/builder3"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/kinproc/kinproc/chain/core/internal/definitions"
	"github.com/kinproc/kinproc/chain/internal/stack"
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

	converters sync.Map // by OpenAPI name, func() (managedfields.TypeConverter, error)
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
	stack.GrowMore() // writes run on a goroutine of their own, which begins with this
	c, err := l.converter(obj.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return c.ObjectToTyped(obj, options...)
}

func (l *lazyTypes) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return l.values.TypedToObject(value)
}

func (l *lazyTypes) converter(gvk schema.GroupVersionKind) (managedfields.TypeConverter, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	name, ok := names[gvk]
	if !ok {
		// its error makes the field manager drop managedFields entries of this version
		return managedfields.NewTypeConverter(nil, false)
	}
	make, ok := models.converters.Load(name)
	if !ok {
		make, _ = models.converters.LoadOrStore(name,
			sync.OnceValues(func() (managedfields.TypeConverter, error) {
				models.building.Lock()
				defer models.building.Unlock()
				definitions, err := builder3.BuildOpenAPIDefinitionsForResources(withDefinitions(l.config),
					name)
				if err != nil {
					return nil, err
				}
				return managedfields.NewTypeConverter(definitions, false)
			}))
	}
	return make.(func() (managedfields.TypeConverter, error))()
}
