package kind

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kinproc/kinproc/chain/internal/tracer"
)

// strategy is the create, update and delete strategy of a kind's main resource.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	k *Kind[Object]
}

func (s strategy) NamespaceScoped() bool                    { return !s.k.ClusterScoped }
func (s strategy) AllowCreateOnUpdate(context.Context) bool { return s.k.CreateOnUpdate }
func (s strategy) AllowUnconditionalUpdate(ctx context.Context) bool {
	if !s.k.RequireResourceVersion {
		return true
	}
	info, ok := request.RequestInfoFrom(ctx)
	return ok && slices.Contains(s.k.Quirks.UnconditionalVersions, info.APIVersion)
}

func (s strategy) Canonicalize(obj runtime.Object) {
	if s.k.Canonicalize != nil {
		s.k.Canonicalize(obj.(Object))
	}
}

func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	t := obj.(Object)
	if s.k.resetsStatus() && !s.k.Quirks.StatusOnCreate {
		partOf(t, "Status").SetZero()
	}
	if s.k.tracksGeneration() {
		t.SetGeneration(1)
	}
	if s.k.PrepareCreate != nil {
		s.k.PrepareCreate(ctx, t)
	}
}

func (s strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	t, o := obj.(Object), old.(Object)
	if s.k.resetsStatus() {
		partOf(t, "Status").Set(partOf(o, "Status"))
	}
	if s.k.PrepareUpdate != nil {
		s.k.PrepareUpdate(ctx, t, o)
	}
	s.k.countGeneration(t, o)
}

func (s strategy) Validate(ctx context.Context, obj runtime.Object) (errs field.ErrorList) {
	defer traceValidation(ctx, obj)(&errs)
	t := obj.(Object)
	if !s.k.Quirks.LooseMetadata {
		errs = apivalidation.ValidateObjectMetaAccessor(t, !s.k.ClusterScoped, s.k.validName,
			field.NewPath("metadata"))
		errs = append(errs, s.k.validateFinalizers(t)...)
	}
	if s.k.Validate != nil {
		errs = append(errs, s.k.Validate(ctx, t)...)
	}
	return bounded(withGoNames(errs))
}

// ValidateUpdate leaves the rest of the metadata to rest.BeforeUpdate.
func (s strategy) ValidateUpdate(
	ctx context.Context, obj, old runtime.Object,
) (errs field.ErrorList) {
	defer traceValidation(ctx, obj)(&errs)
	errs = s.k.validateFinalizers(obj.(Object))
	if s.k.Quirks.NameOnUpdate {
		errs = append(errs, s.k.validateGenerateName(obj.(Object))...)
	}
	switch {
	case s.k.ValidateUpdate != nil:
		errs = append(errs, s.k.ValidateUpdate(ctx, obj.(Object), old.(Object))...)
	case s.k.Validate != nil:
		errs = append(errs, s.k.Validate(ctx, obj.(Object))...)
	}
	return bounded(withGoNames(errs))
}

// ValidateDeclaratively implements rest.DeclarativeValidationStrategy. The registry calls it with
// all errors about an object. It omits those that are said again, as kube-apiserver does: the
// library checks labels, annotations and owners of an updated object twice.
func (s strategy) ValidateDeclaratively(
	_ context.Context, _, _ runtime.Object, errs field.ErrorList, _ operation.Type,
	_ rest.DeclarativeValidationConfig,
) field.ErrorList {
	return errs.Filter()
}

// DeclarativeValidationConfig implements rest.DeclarativeValidationStrategy.
func (s strategy) DeclarativeValidationConfig(
	context.Context, runtime.Object, runtime.Object,
) rest.DeclarativeValidationConfig {
	return rest.DeclarativeValidationConfig{}
}

// mostOfErrors is the size of what clients are told of an object, in bytes. Each of thousands of
// errors may have the whole list as its value, and the library that joins the errors copies what it
// has for each of them.
const mostOfErrors = 50_000

// bounded returns the first errors, up to that size.
func bounded(errs field.ErrorList) field.ErrorList {
	size := 0
	for i, err := range errs {
		size += len(err.Field) + len(err.ErrorBody())
		if size > mostOfErrors {
			return errs[:i+1]
		}
	}
	return errs
}

// traceValidation adds to the request's trace what the strategy changed, and begins the step of the
// validation. The function that it returns ends that step.
func traceValidation(ctx context.Context, obj runtime.Object) (end func(errs *field.ErrorList)) {
	t := tracer.From(ctx)
	if t == nil {
		return func(*field.ErrorList) {}
	}
	t.Prepared(obj)
	done := t.Begin("validation")
	return func(errs *field.ErrorList) {
		if len(*errs) == 0 {
			done("valid", "")
			return
		}
		var fields []string
		for _, err := range *errs {
			fields = append(fields, err.Field)
		}
		done("refused", strings.Join(fields, ", "))
	}
}

// GeneratedName is a [Kind.Name] that requires a DNS-1123 subdomain and accepts every generateName,
// because the generated name is checked.
func GeneratedName(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return apivalidation.NameIsDNSSubdomain(name, false)
}

func (k *Kind[T]) validName(name string, prefix bool) []string {
	if k.Name == nil {
		return apivalidation.NameIsDNSSubdomain(name, prefix)
	}
	return k.Name(name, prefix)
}

func (k *Kind[T]) validateGenerateName(obj T) field.ErrorList {
	prefix := obj.GetGenerateName()
	if prefix == "" {
		return nil
	}
	var errs field.ErrorList
	for _, msg := range k.validName(prefix, true) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "generateName"), prefix, msg))
	}
	return errs
}

func (s strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	if s.k.Warnings == nil {
		return nil
	}
	return s.k.Warnings(ctx, obj.(Object), nil)
}

func (s strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if s.k.Warnings == nil {
		return nil
	}
	return s.k.Warnings(ctx, obj.(Object), old.(Object))
}

func (s strategy) DefaultGarbageCollectionPolicy(
	ctx context.Context,
) rest.GarbageCollectionPolicy {
	if s.k.Quirks.DefaultDeletion == nil {
		return rest.DeleteDependents
	}
	return s.k.Quirks.DefaultDeletion(ctx)
}

// gracefulStrategy is the delete strategy of a kind with a grace period. The registry recognizes it
// by its interface.
type gracefulStrategy struct{ strategy }

func (s gracefulStrategy) CheckGracefulDelete(
	ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions,
) bool {
	return s.k.GracePeriod(ctx, obj.(Object), options)
}

func (k *Kind[T]) tracksGeneration() bool { return k.Generation || k.SameGeneration != nil }

func (k *Kind[T]) countGeneration(obj, old T) {
	if !k.tracksGeneration() {
		return
	}
	same := k.SameGeneration
	if same == nil {
		same = func(obj, old T) bool {
			return equality.Semantic.DeepEqual(partOf(obj, "Spec").Interface(),
				partOf(old, "Spec").Interface())
		}
	}
	if !same(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// partOf returns the top-level field of obj with the given name. The declaration's check ensures
// that the type has it.
func partOf[T Object](obj T, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

func newObject[T Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
}

// resetFields returns the set of the dotted paths for each of the versions.
func resetFields(paths []string, versions []string) map[fieldpath.APIVersion]*fieldpath.Set {
	if len(paths) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, path := range paths {
		var elements []any
		for name := range strings.SplitSeq(path, ".") {
			elements = append(elements, name)
		}
		set.Insert(fieldpath.MakePathOrDie(elements...))
	}
	byVersion := make(map[fieldpath.APIVersion]*fieldpath.Set, len(versions))
	for _, v := range versions {
		byVersion[fieldpath.APIVersion(v)] = set
	}
	return byVersion
}
