package flowcontrolbootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/kubernetes"
)

// FieldManager is the field manager of the objects, as in kube-apiserver.
const FieldManager = "api-priority-and-fairness-config-producer-v1"

// SetStatus sets the status of a new FlowSchema as the API server's own controller would, which
// otherwise has to update each FlowSchema while the server starts.
func SetStatus(s *flowcontrolv1.FlowSchema) {
	s.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{
		Type:               flowcontrolv1.FlowSchemaConditionDangling,
		Status:             flowcontrolv1.ConditionFalse,
		LastTransitionTime: s.CreationTimestamp,
		Reason:             "Found",
		Message: fmt.Sprintf(
			"This FlowSchema references the PriorityLevelConfiguration object named %q and it exists",
			s.Spec.PriorityLevelConfiguration.Name),
	}}
	status := metav1.ManagedFieldsEntry{
		Manager:     utilflowcontrol.ConfigConsumerAsFieldManager,
		Operation:   metav1.ManagedFieldsOperationApply,
		APIVersion:  flowcontrolv1.SchemeGroupVersion.String(),
		Time:        &s.CreationTimestamp,
		FieldsType:  "FieldsV1",
		FieldsV1:    &metav1.FieldsV1{},
		Subresource: "status",
	}
	status.FieldsV1.SetRawString(`{"f:status":{"f:conditions":{"k:{\"type\":\"Dangling\"}":{".":{},` +
		`"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}}}}`)
	s.ManagedFields = slices.Insert(s.ManagedFields, 0, status)
}

// Period is the interval at which the objects should be ensured.
const Period = time.Minute

// Ensure creates, updates and deletes objects once, so that they are in the desired state.
func Ensure(ctx context.Context, client kubernetes.Interface) error {
	api := client.FlowcontrolV1()
	levels := objects[*flowcontrolv1.PriorityLevelConfiguration]{
		client: api.PriorityLevelConfigurations(),
		spec:   func(p *flowcontrolv1.PriorityLevelConfiguration) any { return p.Spec },
		adopt: func(p, wanted *flowcontrolv1.PriorityLevelConfiguration) {
			old := p.Spec.Exempt
			wanted.Spec.DeepCopyInto(&p.Spec)
			if old != nil && p.Spec.Exempt != nil { // the operator may set these two
				p.Spec.Exempt.NominalConcurrencyShares, p.Spec.Exempt.LendablePercent =
					old.NominalConcurrencyShares, old.LendablePercent
			}
		},
	}
	schemas := objects[*flowcontrolv1.FlowSchema]{
		client: api.FlowSchemas(),
		spec:   func(f *flowcontrolv1.FlowSchema) any { return f.Spec },
		adopt:  func(f, wanted *flowcontrolv1.FlowSchema) { wanted.Spec.DeepCopyInto(&f.Spec) },
	}

	existingLevels, err := api.PriorityLevelConfigurations().List(ctx,
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list priority levels: %w", err)
	}
	existingSchemas, err := api.FlowSchemas().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list flow schemas: %w", err)
	}
	return errors.Join(
		levels.ensure(ctx, pointers(existingLevels.Items), bootstrap.SuggestedPriorityLevelConfigurations,
			bootstrap.MandatoryPriorityLevelConfigurations), schemas.ensure(ctx,
			pointers(existingSchemas.Items), bootstrap.SuggestedFlowSchemas, bootstrap.MandatoryFlowSchemas),
	)
}

func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}

// object is a flow schema or a priority level.
type object[T any] interface {
	metav1.Object
	DeepCopy() T
}

type writer[T any] interface {
	Create(ctx context.Context, obj T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

type objects[T object[T]] struct {
	client writer[T]
	spec   func(T) any
	// adopt sets the wanted spec in obj, except for the fields that the operator may set.
	adopt func(obj, wanted T)
}

func (o objects[T]) ensure(ctx context.Context, existing, suggested, mandatory []T) error {
	byName := make(map[string]T, len(existing))
	for _, obj := range existing {
		byName[obj.GetName()] = obj
	}
	var errs []error
	known := map[string]bool{}
	for i, list := range [][]T{suggested, mandatory} {
		for _, wanted := range list {
			known[wanted.GetName()] = true
			obj, ok := byName[wanted.GetName()]
			if !ok {
				errs = append(errs, o.create(ctx, wanted))
			} else if obj, changed := o.desired(obj, wanted, i == 1); changed {
				_, err := o.client.Update(ctx, obj, metav1.UpdateOptions{FieldManager: FieldManager})
				if apierrors.IsConflict(err) {
					err = nil // a concurrent update: the next round checks again
				}
				errs = append(errs, err)
			}
		}
	}
	for name, obj := range byName {
		if !known[name] && obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] == "true" {
			errs = append(errs, o.remove(ctx, obj))
		}
	}
	return errors.Join(errs...)
}

func (o objects[T]) create(ctx context.Context, wanted T) error {
	_, err := o.client.Create(ctx, wanted.DeepCopy(), metav1.CreateOptions{FieldManager: FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil // created concurrently by another server on the same etcd
	}
	return err
}

func (o objects[T]) remove(ctx context.Context, obj T) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	err := o.client.Delete(ctx, obj.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// desired returns obj in its desired state, and reports whether it differs from obj.
func (o objects[T]) desired(obj, wanted T, mandatory bool) (T, bool) {
	updates, err := strconv.ParseBool(obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	if err != nil {
		updates = obj.GetGeneration() == 1
	}
	updates = updates || mandatory

	result := obj.DeepCopy()
	annotations := maps.Clone(result.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(updates)
	result.SetAnnotations(annotations)
	if updates {
		o.adopt(result, wanted)
	}
	same := maps.Equal(annotations, obj.GetAnnotations()) &&
		equality.Semantic.DeepEqual(o.spec(result), o.spec(obj))
	return result, !same
}
