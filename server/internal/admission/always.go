package admission

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/admission"
)

// alwaysAdmit (AlwaysAdmit) admits every request. It is deprecated and off by default.
type alwaysAdmit struct{}

func newAlwaysAdmit() admission.Interface { return alwaysAdmit{} }

func (alwaysAdmit) Handles(admission.Operation) bool { return true }

func (alwaysAdmit) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}

func (alwaysAdmit) Validate(
	context.Context, admission.Attributes, admission.ObjectInterfaces,
) error {
	return nil
}

// alwaysDeny (AlwaysDeny) rejects every request. It is for tests and off by default.
type alwaysDeny struct{}

func newAlwaysDeny() admission.Interface { return alwaysDeny{} }

func (alwaysDeny) Handles(admission.Operation) bool { return true }

func (alwaysDeny) Admit(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	return denied(a)
}

func (alwaysDeny) Validate(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	return denied(a)
}

func denied(a admission.Attributes) error {
	return admission.NewForbidden(a, errors.New("the AlwaysDeny admission plugin is enabled"))
}
