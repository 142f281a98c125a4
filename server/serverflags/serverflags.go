// Package serverflags makes command line flags of the options of a control plane: those of
// kube-apiserver, and some of kinproc.
package serverflags

import (
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/flags"
)

// Add sets the defaults of options and binds them to flags, by section. From then on, errors name
// the flags, and numbers and durations that are 0 stay 0.
func Add(o *server.Options, sections *cliflag.NamedFlagSets) {
	o.BindFlags(flags.Sections{NamedFlagSets: sections})
}
