package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

// Pending stands for plugins that are still being made while the servers that call them are. Set
// must be called before the first request.
type Pending struct{ plugins admission.Interface }

var (
	_ admission.MutationInterface   = &Pending{}
	_ admission.ValidationInterface = &Pending{}
)

// Set sets the plugins.
func (p *Pending) Set(plugins admission.Interface) { p.plugins = plugins }

// Handles implements admission.Interface.
func (p *Pending) Handles(o admission.Operation) bool { return p.plugins.Handles(o) }

// Admit implements admission.MutationInterface.
func (p *Pending) Admit(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	if mutation, ok := p.plugins.(admission.MutationInterface); ok {
		return mutation.Admit(ctx, a, o)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *Pending) Validate(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	if validation, ok := p.plugins.(admission.ValidationInterface); ok {
		return validation.Validate(ctx, a, o)
	}
	return nil
}
