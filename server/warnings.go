package server

import (
	"slices"

	"github.com/kinproc/kinproc/server/internal/auth"
)

// anonymous reports whether requests without credentials are accepted as those of system:anonymous. As
// in kube-apiserver, they are not if everybody may do everything, even if the options ask for it.
func (o *Options) anonymous() bool {
	return !o.DisableAnonymous && !slices.Contains(o.AuthorizationModes, auth.ModeAlwaysAllow)
}

// Warnings returns, in sentences for people, which of the options are dangerous together and what the
// control plane does about it. Nothing logs or prints the warnings unless the caller does.
func (o *Options) Warnings() []string {
	if o.DisableAnonymous || o.anonymous() {
		return nil
	}
	return []string{o.name("AuthorizationModes", "authorization-mode") + " has AlwaysAllow, so requests without credentials are refused: " +
		"otherwise whoever reaches the port would be an administrator"}
}
