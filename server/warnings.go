package server

import (
	"slices"

	"github.com/kinproc/kinproc/server/internal/auth"
)

// anonymous reports whether requests without credentials are those of system:anonymous. As in kube-apiserver they never are where
// everybody may do everything, even if the options ask for it.
func (o *Options) anonymous() bool {
	return !o.DisableAnonymous && !slices.Contains(o.AuthorizationModes, auth.ModeAlwaysAllow)
}

// Warnings says, in sentences for people that name flags, which of the options are dangerous together and what is done about it. The
// program prints them; a library's user may.
func (o *Options) Warnings() []string {
	if o.DisableAnonymous || o.anonymous() {
		return nil
	}
	return []string{"--authorization-mode has AlwaysAllow, so requests without credentials are refused as with --anonymous-auth=false: " +
		"else whoever reaches the port would be an administrator"}
}
