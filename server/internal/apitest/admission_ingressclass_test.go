package apitest

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmissionDefaultIngressClass(t *testing.T) {
	t.Parallel()
	_, client := quiet(t)
	p := newPlugin(t, "DefaultIngressClass", client)
	ingress := func(class *string, annotations map[string]string) *networkingv1.Ingress {
		return &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: annotations},
			Spec:       networkingv1.IngressSpec{IngressClassName: class},
		}
	}
	check := func(what string, i, old *networkingv1.Ingress, want string) {
		t.Helper()
		err := ask(t, p, "ingresses.networking.k8s.io", i, old)
		got := ""
		if i.Spec.IngressClassName != nil {
			got = *i.Spec.IngressClassName
		}
		if err != nil || got != want {
			t.Errorf("%s: got class %q (%v), want %q", what, got, err, want)
		}
	}
	check("no class there", ingress(nil, nil), nil, "")
	for name, isDefault := range map[string]string{"no": "false", "nginx": "true"} {
		must(client.NetworkingV1().IngressClasses().Create(t.Context(), &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{
				Name:        name,
				Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault},
			},
			Spec: networkingv1.IngressClassSpec{Controller: "example.com/c"},
		}, metav1.CreateOptions{}))(t)
	}
	check("default", ingress(nil, nil), nil, "nginx")
	check("own", ingress(new("own"), nil), nil, "own")
	check("by annotation", ingress(nil, map[string]string{
		"kubernetes.io/ingress.class": "own",
	}), nil, "")
	check("update", ingress(nil, nil), ingress(nil, nil), "")
}
