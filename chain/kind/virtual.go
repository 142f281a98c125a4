package kind

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (v *Virtual) register(scheme *runtime.Scheme) error {
	gvk, err := externalKind(scheme, v.New().New())
	if err != nil {
		return err
	}
	return registerHub(scheme, gvk, gvk.Group)
}

func (v *Virtual) resources(b *builder) error {
	s := v.New()
	gvk, err := externalKind(b.scheme, s.New())
	if err != nil {
		return err
	}
	return b.add([]schema.GroupVersion{gvk.GroupVersion()}, v.Plural, s)
}
