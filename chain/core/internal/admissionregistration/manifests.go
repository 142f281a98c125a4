package admissionregistration

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	policies "k8s.io/apiserver/pkg/admission/plugin/policy/manifest/loader"
	webhooks "k8s.io/apiserver/pkg/admission/plugin/webhook/manifest/loader"

	"github.com/kinproc/kinproc/chain/kind"
)

// Initializer is the admission.PluginInitializer of the plugins that evaluate policies and call
// webhooks.
//
// It tells the plugins which resources are excluded, and loads policies and webhooks from files if
// the plugins' configuration names any (KEP-5793). An object in such a file must be valid in the
// API, except for its name, which is reserved for files.
type Initializer struct{}

// Initialize implements admission.PluginInitializer.
func (Initializer) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		p.SetExcludedAdmissionResources(Excluded())
	}
	p, ok := plugin.(initializer.WantsManifestLoaders)
	if !ok {
		return
	}
	anyParams := ParamAccess{} // objects in files must not refer to parameters
	p.SetManifestLoaders(&initializer.ManifestLoaders{
		LoadValidatingWebhookManifests: func(
			dir string,
		) ([]*admissionv1.ValidatingWebhookConfiguration, string, error) {
			return webhooks.LoadManifests(dir, decoder(),
				accept(ValidatingWebhookConfigurations()))
		},
		LoadMutatingWebhookManifests: func(
			dir string,
		) ([]*admissionv1.MutatingWebhookConfiguration, string, error) {
			return webhooks.LoadManifests(dir, decoder(),
				accept(MutatingWebhookConfigurations()))
		},
		LoadValidatingPolicyManifests: func(dir string) (
			[]*admissionv1.ValidatingAdmissionPolicy, []*admissionv1.ValidatingAdmissionPolicyBinding,
			string, error,
		) {
			return policies.LoadPolicyManifests(dir, decoder(),
				accept(ValidatingAdmissionPolicies(anyParams)),
				accept(ValidatingAdmissionPolicyBindings(anyParams)),
				func(b *admissionv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
		LoadMutatingPolicyManifests: func(dir string) (
			[]*admissionv1.MutatingAdmissionPolicy, []*admissionv1.MutatingAdmissionPolicyBinding, string,
			error,
		) {
			return policies.LoadPolicyManifests(dir, decoder(),
				accept(MutatingAdmissionPolicies(anyParams)),
				accept(MutatingAdmissionPolicyBindings(anyParams)),
				func(b *admissionv1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
	})
}

// decoder returns a strict decoder of the objects allowed in the files.
func decoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	_ = admissionv1.AddToScheme(scheme) // never fails for generated types
	scheme.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// accept returns a function that defaults and validates an object of a kind, or a list of them, as
// the API would.
func accept[T kind.Object](k *kind.Kind[T]) func(runtime.Object) ([]T, error) {
	return func(obj runtime.Object) ([]T, error) {
		objects := []runtime.Object{obj}
		if meta.IsListType(obj) {
			var err error
			if objects, err = meta.ExtractList(obj); err != nil {
				return nil, err
			}
		}
		items := make([]T, 0, len(objects))
		for _, o := range objects {
			item, ok := o.(T)
			if !ok {
				return nil, fmt.Errorf("unexpected type %T: %w", o, policies.ErrUnrecognizedType)
			}
			k.Default(item)
			if errs := k.Validate(context.Background(), item); len(errs) > 0 {
				return nil, fmt.Errorf("%s: %w", item.GetName(), errs.ToAggregate())
			}
			items = append(items, item)
		}
		return items, nil
	}
}
