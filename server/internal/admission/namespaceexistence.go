package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// inNamespace reports whether a request requires a namespace to exist.
func inNamespace(a admission.Attributes) bool {
	return a.GetNamespace() != "" &&
		a.GetKind().GroupKind() != corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()
}

// autoProvision (NamespaceAutoProvision) creates a missing namespace when an object is created in
// it. Off by default.
type autoProvision struct {
	*admission.Handler
	plugin.WantsClient
}

func newAutoProvision() admission.Interface {
	return &autoProvision{Handler: admission.NewHandler(admission.Create)}
}

func (p *autoProvision) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !inNamespace(a) || a.IsDryRun() {
		return nil
	}
	namespaces := p.Client.CoreV1().Namespaces()
	_, err := namespaces.Get(ctx, a.GetNamespace(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = namespaces.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.GetNamespace()}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// namespaceExists (NamespaceExists) rejects requests in a namespace that does not exist. Off by
// default because NamespaceLifecycle does more.
type namespaceExists struct {
	*admission.Handler
	plugin.WantsClient
}

func newNamespaceExists() admission.Interface {
	return &namespaceExists{
		Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete),
	}
}

func (p *namespaceExists) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	if !inNamespace(a) {
		return nil
	}
	_, err := p.Client.CoreV1().Namespaces().Get(ctx, a.GetNamespace(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return apierrors.NewInternalError(err)
	}
	return err
}
