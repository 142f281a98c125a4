package legacy

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/kinproc/kinproc/chain/features"
)

// bindingREST implements bindings, which assigns pods to nodes. Schedulers use [podBindingREST]
// instead.
type bindingREST struct {
	// pods is set when the storage of pods is created.
	pods *genericregistry.Store
}

func (r *bindingREST) New() runtime.Object     { return &corev1.Binding{} }
func (r *bindingREST) Destroy()                {}
func (r *bindingREST) NamespaceScoped() bool   { return true }
func (r *bindingREST) GetSingularName() string { return "binding" }

func (r *bindingREST) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions,
) (runtime.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return r.bind(ctx, m.GetName(), obj, validate, options)
}

// podBindingREST implements pods/binding.
type podBindingREST struct{ *bindingREST }

var _ rest.SubresourceObjectMetaPreserver = podBindingREST{}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate returns true to keep the UID of the
// request, which is a precondition on the pod.
func (podBindingREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool {
	return true
}

func (r podBindingREST) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions,
) (runtime.Object, error) {
	return r.bind(ctx, name, obj, validate, options)
}

func (r *bindingREST) bind(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions,
) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", obj))
	}
	if binding.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match the name of the Binding")
	}
	if errs := validateTarget(&binding.Target); len(errs) > 0 {
		// Like kube-apiserver, do not return an Invalid status.
		return nil, errs.ToAggregate()
	}
	if validate != nil {
		if err := validate(ctx, binding.DeepCopy()); err != nil {
			return nil, err
		}
	}
	preconditions := &storage.Preconditions{}
	if binding.UID != "" {
		preconditions.UID = &binding.UID
	}
	if binding.ResourceVersion != "" {
		preconditions.ResourceVersion = &binding.ResourceVersion
	}
	err := changePod(ctx, r.pods, name, preconditions, dryrun.IsDryRun(options.DryRun),
		func(p *corev1.Pod) error { return assign(p, binding) })
	if _, ok := err.(apierrors.APIStatus); err != nil && !ok {
		err = apierrors.NewConflict(corev1.Resource("pods/binding"), name, err)
	}
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func validateTarget(target *corev1.ObjectReference) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("target")
	if target.Kind != "" && target.Kind != "Node" {
		errs = append(errs, field.NotSupported(path.Child("kind"), target.Kind,
			[]string{"Node", "<empty>"}))
	}
	switch {
	case target.Name == "":
		errs = append(errs, field.Required(path.Child("name"), ""))
	case len(errs) == 0:
		errs = append(errs, invalidName(path.Child("name"), target.Name)...)
	}
	return errs
}

func assign(p *corev1.Pod, binding *corev1.Binding) error {
	switch {
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted and cannot be assigned to a node", p.Name)
	case p.Spec.NodeName != "":
		return fmt.Errorf("pod %s is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %s still has scheduling gates", p.Name)
	}
	p.Spec.NodeName = binding.Target.Name
	if features.Enabled(features.ClearingNominatedNodeNameAfterBinding) {
		p.Status.NominatedNodeName = ""
	}
	p.Annotations = overlay(p.Annotations, binding.Annotations)
	// topology labels of the node, which admission copies to the binding (KEP-4742)
	if features.Enabled(features.PodTopologyLabelsAdmission) {
		p.Labels = overlay(p.Labels, binding.Labels)
	}
	setPodCondition(&p.Status,
		corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return nil
}

func overlay(under, over map[string]string) map[string]string {
	if under == nil && len(over) > 0 {
		under = map[string]string{}
	}
	maps.Copy(under, over)
	return under
}

// changePod updates a stored pod, bypassing the strategy that applies to client requests.
func changePod(
	ctx context.Context, pods *genericregistry.Store, name string,
	preconditions *storage.Preconditions, dryRun bool, change func(*corev1.Pod) error,
) error {
	key, err := pods.KeyFunc(ctx, name)
	if err != nil {
		return err
	}
	update := storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		p, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("not a Pod object: %T", obj)
		}
		return p, change(p)
	})
	err = pods.Storage.GuaranteedUpdate(ctx, key, &corev1.Pod{}, false, preconditions, update,
		dryRun, nil)
	if err == nil {
		return nil
	}
	err = storageerrors.InterpretGetError(err, corev1.Resource("pods"), name)
	return storageerrors.InterpretUpdateError(err, corev1.Resource("pods"), name)
}
