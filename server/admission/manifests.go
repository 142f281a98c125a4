package admission

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

	"github.com/kinproc/kinproc/chain/core/admissionregistration"
	"github.com/kinproc/kinproc/chain/core/kind"
)

// Manifests is the admission.PluginInitializer that has policies and webhooks read from files, where the plugins' configuration says so
// (KEP-5793). They must be such as the API takes, but for their names, which it does not take.
type Manifests struct{}

// Initialize implements admission.PluginInitializer.
func (Manifests) Initialize(plugin admission.Interface) {
	p, ok := plugin.(initializer.WantsManifestLoaders)
	if !ok {
		return
	}
	anyParams := admissionregistration.ParamAccess{} // files must not name any
	p.SetManifestLoaders(&initializer.ManifestLoaders{
		LoadValidatingWebhookManifests: func(dir string) ([]*admissionv1.ValidatingWebhookConfiguration, string, error) {
			return webhooks.LoadManifests(dir, decoder(),
				accept[*admissionv1.ValidatingWebhookConfiguration](admissionregistration.ValidatingWebhookConfigurations()))
		},
		LoadMutatingWebhookManifests: func(dir string) ([]*admissionv1.MutatingWebhookConfiguration, string, error) {
			return webhooks.LoadManifests(dir, decoder(),
				accept[*admissionv1.MutatingWebhookConfiguration](admissionregistration.MutatingWebhookConfigurations()))
		},
		LoadValidatingPolicyManifests: func(dir string) ([]*admissionv1.ValidatingAdmissionPolicy, []*admissionv1.ValidatingAdmissionPolicyBinding, string, error) {
			return policies.LoadPolicyManifests(dir, decoder(),
				accept[*admissionv1.ValidatingAdmissionPolicy](admissionregistration.ValidatingAdmissionPolicies(anyParams)),
				accept[*admissionv1.ValidatingAdmissionPolicyBinding](admissionregistration.ValidatingAdmissionPolicyBindings(anyParams)),
				func(b *admissionv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
		},
		LoadMutatingPolicyManifests: func(dir string) ([]*admissionv1.MutatingAdmissionPolicy, []*admissionv1.MutatingAdmissionPolicyBinding, string, error) {
			return policies.LoadPolicyManifests(dir, decoder(),
				accept[*admissionv1.MutatingAdmissionPolicy](admissionregistration.MutatingAdmissionPolicies(anyParams)),
				accept[*admissionv1.MutatingAdmissionPolicyBinding](admissionregistration.MutatingAdmissionPolicyBindings(anyParams)),
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
func accept[T kind.Object](d kind.Declaration) func(runtime.Object) ([]T, error) {
	k := d.(*kind.Kind[T])
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
