package server

import (
	"k8s.io/apiserver/pkg/server/flagz"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server/internal/flags"
)

// shownFlags tells /flagz the values of all flags (KEP-4828). A control plane that was started
// through the Go API has the flags with which the program would have started it.
type shownFlags struct{ options Options }

// GetFlagz implements [flagz.Reader].
func (s shownFlags) GetFlagz() map[string]string {
	// The flags write to what they are bound to.
	o := s.options
	admission, audit := *o.Admission, *o.Audit
	o.Admission, o.Audit = &admission, &audit
	var sections cliflag.NamedFlagSets
	o.BindFlags(flags.Sections{NamedFlagSets: &sections})
	return flagz.NamedFlagSetsReader{FlagSets: sections}.GetFlagz()
}
