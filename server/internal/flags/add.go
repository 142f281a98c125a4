package flags

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
)

// Sections are flags by the sections of a help text. Only packages of this module can name the
// type, so that Options.BindFlags is for package serverflags alone.
type Sections struct{ *cliflag.NamedFlagSets }

// The annotations of flags.
const (
	// Sandbox marks what kube-apiserver, and the program under this name, does not have.
	Sandbox = "kinproc.dev/sandbox"
	// NoAccess marks what does not decide who may do what. Its value is why.
	NoAccess = "kinproc.dev/no-access"
)

// Add adds the flag of an option, the address of which is given. Its value is the default.
func Add(f *pflag.FlagSet, option any, name, help string) *pflag.Flag {
	switch p := option.(type) {
	case *string:
		f.StringVar(p, name, *p, help)
	case *bool:
		f.BoolVar(p, name, *p, help)
	case *int:
		f.IntVar(p, name, *p, help)
	case *int64:
		f.Int64Var(p, name, *p, help)
	case **int64:
		*p = new(**p) // others may have the pointer, and flags write to what it points to
		f.Int64Var(*p, name, **p, help)
	case *time.Duration:
		f.DurationVar(p, name, *p, help)
	case *[]string:
		f.StringSliceVar(p, name, *p, help)
	case *map[string]bool:
		f.Var(cliflag.NewMapStringBool(p), name, help)
	case *map[string]string:
		f.Var(cliflag.NewMapStringStringNoSplit(p), name, help)
	case *corev1.ResourceList:
		f.Var(quantities{p}, name, help)
	case pflag.Value:
		f.Var(p, name, help)
	default:
		panic(fmt.Sprintf("--%s: there are no flags of type %T", name, option))
	}
	return f.Lookup(name)
}

// Annotate adds an annotation to a flag.
func Annotate(f *pflag.Flag, key, value string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[key] = []string{value}
}
