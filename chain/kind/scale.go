package kind

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// scaleREST serves the number of replicas as an autoscaling/v1 Scale.
type scaleREST struct {
	store    *genericregistry.Store
	scale    *Scale[Object]
	mappings managedfields.ResourcePathMappings
}

func newScaleREST(
	store *genericregistry.Store, scale *Scale[Object], versions []string,
) *scaleREST {
	mappings := managedfields.ResourcePathMappings{}
	for _, v := range versions {
		mappings[v] = fieldpath.MakePathOrDie("spec", "replicas")
	}
	return &scaleREST{store: store, scale: scale, mappings: mappings}
}

func (r *scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy leaves the store to the main resource.
func (r *scaleREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider. The kind is the same in all groups.
func (r *scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

func (r *scaleREST) ConvertToTable(
	ctx context.Context, obj, options runtime.Object,
) (*metav1.Table, error) {
	convertor := tableConvertor{
		columns: []Column{
			{Name: "Name", Type: "string", Description: "Name of the scaled object."},
			{Name: "Desired", Type: "integer", Description: "Replicas wanted."},
			{Name: "Available", Type: "integer", Description: "Replicas observed."},
			AgeColumn(),
		},
		row: func(obj Object) []any {
			s := obj.(*autoscalingv1.Scale)
			return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), Age(s)}
		},
	}
	return convertor.ConvertToTable(ctx, obj, options)
}

func (r *scaleREST) Get(
	ctx context.Context, name string, options *metav1.GetOptions,
) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return r.toScale(obj.(Object))
}

func (r *scaleREST) toScale(obj Object) (*autoscalingv1.Scale, error) {
	selector, err := r.scale.Selector(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("selector of %s %q: %v",
			r.store.DefaultQualifiedResource, obj.GetName(), err))
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              obj.GetName(),
			Namespace:         obj.GetNamespace(),
			UID:               obj.GetUID(),
			ResourceVersion:   obj.GetResourceVersion(),
			CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: r.scale.Replicas(obj)},
		Status: autoscalingv1.ScaleStatus{Replicas: r.scale.StatusReplicas(obj), Selector: selector},
	}, nil
}

func (r *scaleREST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool,
	options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	obj, _, err := r.store.Update(ctx, name, &scaleUpdate{scaleREST: r, name: name, scale: info},
		r.validateScale(createValidation), r.validateScaleUpdate(updateValidation), false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := r.toScale(obj.(Object))
	return scale, false, err
}

// validateScale lets admission see the Scale instead of the scaled object.
func (r *scaleREST) validateScale(f rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		scale, err := r.toScale(obj.(Object))
		if err != nil {
			return err
		}
		return f(ctx, scale)
	}
}

func (r *scaleREST) validateScaleUpdate(
	f rest.ValidateObjectUpdateFunc,
) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		scale, err := r.toScale(obj.(Object))
		if err != nil {
			return err
		}
		oldScale, err := r.toScale(old.(Object))
		if err != nil {
			return err
		}
		return f(ctx, scale, oldScale)
	}
}

// scaleUpdate turns a change of the Scale into a change of the object.
type scaleUpdate struct {
	*scaleREST
	name  string
	scale rest.UpdatedObjectInfo
}

func (u *scaleUpdate) Preconditions() *metav1.Preconditions { return u.scale.Preconditions() }

func (u *scaleUpdate) UpdatedObject(
	ctx context.Context, old runtime.Object,
) (runtime.Object, error) {
	if old.(Object).GetResourceVersion() == "" {
		return nil, apierrors.NewNotFound(u.store.DefaultQualifiedResource, u.name)
	}
	obj := old.DeepCopyObject().(Object)
	gv, err := requestVersion(ctx)
	if err != nil {
		return nil, err
	}
	managed := managedfields.NewScaleHandler(obj.GetManagedFields(), gv, u.mappings)

	oldScale, err := u.toScale(obj)
	if err != nil {
		return nil, err
	}
	if oldScale.ManagedFields, err = managed.ToSubresource(); err != nil {
		return nil, err
	}
	updated, err := u.scale.UpdatedObject(ctx, oldScale)
	if err != nil {
		return nil, err
	}
	scale, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object must be a Scale, not %T", updated))
	}
	if errs := validateScale(scale); len(errs) > 0 {
		return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(),
			u.name, errs)
	}
	if scale.UID != "" && scale.UID != obj.GetUID() {
		err := fmt.Errorf("uid mismatch: the Scale has uid %s, the object has %s",
			scale.UID, obj.GetUID())
		scaled := u.store.DefaultQualifiedResource
		return nil, apierrors.NewConflict(schema.GroupResource{
			Group:    scaled.Group,
			Resource: scaled.Resource + "/scale",
		}, u.name, err)
	}
	obj.SetResourceVersion(scale.ResourceVersion)
	u.scaleREST.scale.SetReplicas(obj, scale.Spec.Replicas)
	entries, err := managed.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, err
	}
	obj.SetManagedFields(entries)
	return obj, nil
}

func validateScale(scale *autoscalingv1.Scale) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&scale.ObjectMeta, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	errs = append(errs, ValidateFinalizers(scale)...)
	return append(errs, apivalidation.ValidateNonnegativeField(int64(scale.Spec.Replicas),
		field.NewPath("spec", "replicas"))...)
}

// requestVersion returns the version of the parent resource in the request's path.
func requestVersion(ctx context.Context) (schema.GroupVersion, error) {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return schema.GroupVersion{},
			apierrors.NewInternalError(fmt.Errorf("no RequestInfo in the request's context"))
	}
	return schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, nil
}
