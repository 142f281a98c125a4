package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// ingressClassAnnotation names the class of an ingress. It predates spec.ingressClassName.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// defaultIngressClass (DefaultIngressClass) sets the default class in ingresses that do not name a
// class.
type defaultIngressClass struct {
	*admission.Handler
	plugin.WantsClient
}

func newDefaultIngressClass() admission.Interface {
	return &defaultIngressClass{Handler: admission.NewHandler(admission.Create)}
}

func (p *defaultIngressClass) Admit(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	ingress, ok, err := plugin.Object[*networkingv1.Ingress](a, networkingv1.Resource("ingresses"))
	if !ok || ingress.Spec.IngressClassName != nil {
		return err
	}
	if _, ok := ingress.Annotations[ingressClassAnnotation]; ok {
		return nil
	}
	classes, err := p.Client.NetworkingV1().IngressClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	var chosen metav1.Object
	for i := range classes.Items {
		if c := &classes.Items[i]; c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			chosen = newer(chosen, c)
		}
	}
	if chosen != nil {
		ingress.Spec.IngressClassName = new(chosen.GetName())
	}
	return nil
}
