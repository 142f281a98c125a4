package core

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/builder3"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// lazyTypes converts objects for managed fields. It builds the OpenAPI definitions of a kind when
// it first sees an object of that kind: all kinds together take about 15 ms, one kind well under a
// millisecond.
type lazyTypes struct {
	config *openapicommon.OpenAPIV3Config
	// building is held while definitions or documents are built from config, because the builder
	// temporarily changes the definitions in config.
	building *sync.Mutex
	names    map[schema.GroupVersionKind]string // OpenAPI names of the types
	values   managedfields.TypeConverter        // for conversion from typed values, which needs no schema

	converters sync.Map // by OpenAPI name, func() (managedfields.TypeConverter, error)
}

func newLazyTypes(config *openapicommon.OpenAPIV3Config, building *sync.Mutex, names map[schema.GroupVersionKind]string) *lazyTypes {
	return &lazyTypes{config: config, building: building, names: names, values: managedfields.NewDeducedTypeConverter()}
}

func (l *lazyTypes) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
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
	name, ok := l.names[gvk]
	if !ok {
		return managedfields.NewTypeConverter(nil, false) // its error makes the field manager drop managedFields entries of this version
	}
	make, ok := l.converters.Load(name)
	if !ok {
		make, _ = l.converters.LoadOrStore(name, sync.OnceValues(func() (managedfields.TypeConverter, error) {
			l.building.Lock()
			defer l.building.Unlock()
			definitions, err := builder3.BuildOpenAPIDefinitionsForResources(l.config, name)
			if err != nil {
				return nil, err
			}
			return managedfields.NewTypeConverter(definitions, false)
		}))
	}
	return make.(func() (managedfields.TypeConverter, error))()
}
