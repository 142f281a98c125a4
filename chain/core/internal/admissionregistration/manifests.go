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

// Initializer is the admission.PluginInitializer of the plugins that ask policies and webhooks.
//
// It tells them what they are not asked about, and reads policies and webhooks from files where the
// plugins' configuration says so (KEP-5793). The API must take an object of such a file, but for its
// name, which the API refuses.
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
	anyParams := ParamAccess{} // files must not name any
	p.SetManifestLoaders(&initializer.ManifestLoaders{
		LoadValidatingWebhookManifests: func(dir string) ([]*admissionv1.ValidatingWebhookConfiguration, string, error) {
			return webhooks.LoadManifests(dir, decoder(),
				accept(ValidatingWebhookConfigurations()))
		},
		LoadMutatingWebhookManifests: func(dir string) ([]*admissionv1.MutatingWebhookConfiguration, string, error) {
			return webhooks.LoadManifests(dir, decoder(),
				accept(MutatingWebhookConfigurations()))
		},
		LoadValidatingPolicyManifests: func(dir string) ([]*admissionv1.ValidatingAdmissionPolicy, []*admissionv1.ValidatingAdmissionPolicyBinding, string, error) {
			return policies.LoadPolicyManifests(dir, decoder(),
				accept(ValidatingAdmissionPolicies(anyParams)),
				accept(ValidatingAdmissionPolicyBindings(anyParams)),
				func(b *admissionv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
		LoadMutatingPolicyManifests: func(dir string) ([]*admissionv1.MutatingAdmissionPolicy, []*admissionv1.MutatingAdmissionPolicyBinding, string, error) {
			return policies.LoadPolicyManifests(dir, decoder(),
				accept(MutatingAdmissionPolicies(anyParams)),
				accept(MutatingAdmissionPolicyBindings(anyParams)),
				func(b *admissionv1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
	})
}

// decoder reads what may be in the files, and refuses fields that it does not know.
func decoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	_ = admissionv1.AddToScheme(scheme) // fails for none of the generated ones
	scheme.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// accept takes an object of a kind, or a list of them, as the API would.
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
				return nil, fmt.Errorf("%T does not belong here: %w", o, policies.ErrUnrecognizedType)
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
