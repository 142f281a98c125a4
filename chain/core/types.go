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

// lazyTypes converts objects for managed fields. It reads the OpenAPI definitions of a kind when the first object of it comes: those of
// all kinds take some 15 ms, one kind's well under a millisecond.
type lazyTypes struct {
	config *openapicommon.OpenAPIV3Config
	// building is held while documents are made of config, whose definitions the making changes for a moment.
	building *sync.Mutex
	names    map[schema.GroupVersionKind]string // the OpenAPI names of the types
	values   managedfields.TypeConverter        // for the way back, which needs no types

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
		return managedfields.NewTypeConverter(nil, false) // its error is the one that drops the fields of managers of that version
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
