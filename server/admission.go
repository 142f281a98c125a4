package server

import (
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/kinproc/kinproc/chain"
	"github.com/kinproc/kinproc/server/internal/admission"
)

// NewAdmissionOptions returns kube-apiserver's admission plugins, in its order and with its
// defaults. Change the result before you assign it to [Options].Admission: EnablePlugins,
// DisablePlugins and ConfigFile correspond to the flags --enable-admission-plugins,
// --disable-admission-plugins and --admission-control-config-file.
func NewAdmissionOptions() *genericoptions.AdmissionOptions {
	o := admission.NewOptions()
	o.Decorators = append(o.Decorators, apiserveradmission.DecoratorFunc(chain.TraceAdmission))
	return o
}
