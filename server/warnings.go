package server

import (
	"slices"

	"github.com/kinproc/kinproc/server/internal/auth"
	"github.com/kinproc/kinproc/server/internal/featuregates"
)

// anonymous reports whether requests without credentials are accepted as those of system:anonymous.
// As in kube-apiserver, they are refused if everybody may do everything, even if the options allow
// them.
func (o *Options) anonymous() bool {
	return !o.DisableAnonymous && !slices.Contains(o.AuthorizationModes, auth.ModeAlwaysAllow)
}

// Warnings returns, in human-readable sentences, which combinations of options are dangerous and
// what the control plane does about them, and which flags have no effect. The control plane does
// not log or print the warnings; that is left to the caller.
func (o *Options) Warnings() []string {
	var warnings []string
	warnings = append(warnings, o.ineffective...)
	for _, sentence := range featuregates.Ineffective(o.FeatureGates) {
		warnings = append(warnings, o.name("FeatureGates", "feature-gates")+": "+sentence)
	}
	if o.DisableAnonymous || o.anonymous() {
		return warnings
	}
	return append(warnings, o.name("AuthorizationModes", "authorization-mode")+
		" has AlwaysAllow, so requests without credentials are refused: "+
		"otherwise anyone who can reach the port would be an administrator")
}
