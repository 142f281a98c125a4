package kind

import (
	"errors"
	"fmt"
	"reflect"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// declaration is the engine's view of a declared kind.
type declaration interface {
	// check returns errors for combinations of fields that cannot work. The scheme knows the types
	// of the groups.
	check(scheme *runtime.Scheme) (name, plural string, errs field.ErrorList)
	// creation returns how new objects of the kind are made, or nil if obj is of another kind.
	creation(scheme *runtime.Scheme, obj Object) *creation
	// register adds the hub version, field labels, defaults and conversions to the scheme.
	register(scheme *runtime.Scheme) error
	// resources makes the storage of the resource and its subresources.
	resources(b *builder) error
}

// NewScheme returns a scheme with the types, defaults and conversions of groups, and with what
// every API server's scheme needs. It refuses declarations that cannot work.
func NewScheme(groups ...Group) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{},
		&metav1.APIGroup{}, &metav1.APIResourceList{})

	for _, g := range groups {
		var versions []schema.GroupVersion
		for _, v := range g.Versions {
			if err := v.AddToScheme(scheme); err != nil {
				return nil, fmt.Errorf("register %s/%s: %w", g.Name, v.Version, err)
			}
			versions = append(versions, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
		if err := scheme.SetVersionPriority(versions...); err != nil {
			return nil, fmt.Errorf("register group %q: %w", g.Name, err)
		}
	}
	// Scale subresources need the type Scale even if the group autoscaling is not served.
	if !scheme.IsVersionRegistered(autoscalingv1.SchemeGroupVersion) {
		utilruntime.Must(autoscalingv1.AddToScheme(scheme))
	}
	scheme.AddKnownTypes(schema.GroupVersion{
		Group:   autoscalingv1.GroupName,
		Version: runtime.APIVersionInternal,
	}, &autoscalingv1.Scale{})

	var errs []error
	for _, g := range groups {
		errs = append(errs, checkGroup(scheme, g))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, g := range groups {
		for _, k := range g.Kinds {
			if err := k.register(scheme); err != nil {
				return nil, fmt.Errorf("register group %q: %w", g.Name, err)
			}
		}
	}
	return scheme, nil
}

func (k *Kind[T]) register(scheme *runtime.Scheme) error {
	obj := newObject[T]()
	gvk, err := k.gvk(scheme)
	if err != nil {
		return err
	}
	if err := registerHub(scheme, gvk, gvk.Group); err != nil {
		return err
	}
	if k.Default != nil {
		scheme.AddTypeDefaultingFunc(obj, func(o any) { k.Default(o.(T)) })
	}
	if err := k.registerFieldLabels(scheme, gvk); err != nil {
		return err
	}
	for _, v := range k.Versions {
		if err := v.install(scheme, gvk); err != nil {
			return err
		}
		served, err := externalKind(scheme, v.example)
		if err != nil {
			return err
		}
		if v.fields != nil {
			err = scheme.AddFieldLabelConversionFunc(served,
				func(label, value string) (string, string, error) {
					if hub, ok := v.fields[label]; ok {
						return hub, value, nil
					}
					return "", "", fmt.Errorf("field label not supported: %s", label)
				})
		} else {
			err = k.registerFieldLabels(scheme, served)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// registerFieldLabels accepts metadata.namespace, as kube-apiserver does, also for cluster-scoped
// kinds without other fields. It matches none of their objects.
func (k *Kind[T]) registerFieldLabels(scheme *runtime.Scheme, gvk schema.GroupVersionKind) error {
	namespace := !k.ClusterScoped || len(k.Fields) == 0
	return scheme.AddFieldLabelConversionFunc(gvk, func(label, value string) (string, string, error) {
		if _, ok := k.Fields[label]; ok || label == "metadata.name" ||
			(label == "metadata.namespace" && namespace) {
			return label, value, nil
		}
		return "", "", fmt.Errorf("field label not supported: %s", label)
	})
}

// gvk returns the GroupVersionKind of the hub version, with the external name of that version.
func (k *Kind[T]) gvk(scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	return externalKind(scheme, newObject[T]())
}

// registerHub registers the Go type of gvk, and the type of its list, as the group's internal
// version too.
func registerHub(scheme *runtime.Scheme, gvk schema.GroupVersionKind, group string) error {
	internal := schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
	for _, name := range []string{gvk.Kind, gvk.Kind + "List"} {
		obj, err := scheme.New(gvk.GroupVersion().WithKind(name))
		if runtime.IsNotRegisteredError(err) && name != gvk.Kind {
			continue // a virtual resource has no list
		}
		if err != nil {
			return err
		}
		scheme.AddKnownTypeWithName(internal.WithKind(name), obj)
	}
	return nil
}

// externalKind returns the GroupVersionKind of obj in the one version that is not internal.
func externalKind(scheme *runtime.Scheme, obj runtime.Object) (schema.GroupVersionKind, error) {
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{},
			fmt.Errorf("no version's AddToScheme registers %T: %w", obj, err)
	}
	for _, gvk := range kinds {
		if gvk.Version != runtime.APIVersionInternal {
			return gvk, nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("%T is registered as an internal version only", obj)
}

func newVersion[V, H Object](
	toHub func(V, H) error, fromHub func(H, V) error, defaults func(V),
) Version {
	return Version{
		example:  newObject[V](),
		hub:      reflect.TypeFor[H](),
		converts: toHub != nil && fromHub != nil,
		install: func(scheme *runtime.Scheme, hub schema.GroupVersionKind) error {
			v, h := newObject[V](), newObject[H]()
			if err := scheme.AddConversionFunc(v, h, func(in, out any, _ conversion.Scope) error {
				return toHub(in.(V), out.(H))
			}); err != nil {
				return err
			}
			if err := scheme.AddConversionFunc(h, v, func(in, out any, _ conversion.Scope) error {
				return fromHub(in.(H), out.(V))
			}); err != nil {
				return err
			}
			if defaults != nil {
				scheme.AddTypeDefaultingFunc(v, func(o any) { defaults(o.(V)) })
			}
			gvk, err := externalKind(scheme, v)
			if err != nil {
				return err
			}
			if err := addListConversions(scheme, gvk, hub); err != nil {
				return err
			}
			if gvk.Group == hub.Group {
				return nil
			}
			return registerHub(scheme, hub, gvk.Group)
		},
	}
}

// addListConversions converts lists item by item.
func addListConversions(scheme *runtime.Scheme, a, b schema.GroupVersionKind) error {
	listA, err := scheme.New(a.GroupVersion().WithKind(a.Kind + "List"))
	if err != nil {
		return err
	}
	listB, err := scheme.New(b.GroupVersion().WithKind(b.Kind + "List"))
	if err != nil {
		return err
	}
	if err := scheme.AddConversionFunc(listA, listB, convertList); err != nil {
		return err
	}
	return scheme.AddConversionFunc(listB, listA, convertList)
}

func convertList(in, out any, scope conversion.Scope) error {
	from, to := reflect.ValueOf(in).Elem(), reflect.ValueOf(out).Elem()
	to.FieldByName("ListMeta").Set(from.FieldByName("ListMeta"))
	fromItems, toItems := from.FieldByName("Items"), to.FieldByName("Items")
	if fromItems.IsNil() {
		toItems.SetZero()
		return nil
	}
	toItems.Set(reflect.MakeSlice(toItems.Type(), fromItems.Len(), fromItems.Len()))
	for i := range fromItems.Len() {
		if err := scope.Convert(fromItems.Index(i).Addr().Interface(),
			toItems.Index(i).Addr().Interface()); err != nil {
			return err
		}
	}
	return nil
}
