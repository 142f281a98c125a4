package flags

import (
	"fmt"
	"strings"

	"github.com/mitchellh/go-wordwrap"
	"github.com/spf13/pflag"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/kinproc/kinproc/server/internal/controllers"
)

// DescribeControllers returns the usage of --controllers, with a line for each control loop.
func DescribeControllers() string {
	var b strings.Builder
	b.WriteString("control loops to run: '*' for all, which is the default, 'name' for one, " +
		"'-name' for all but one, '-*' for none. Available:")
	for _, c := range controllers.All() {
		fmt.Fprintf(&b, "\n  %s: %s", c.Name, c.Purpose)
	}
	return b.String()
}

// DescribePlugins replaces the usage of the flags that enable and disable admission plugins. The
// library's own text has all names on one line, twice.
func DescribePlugins(f *pflag.FlagSet, o *genericoptions.AdmissionOptions) {
	var on, off []string
	for _, name := range o.RecommendedPluginOrder {
		if o.DefaultOffPlugins.Has(name) {
			off = append(off, name)
		} else {
			on = append(on, name)
		}
	}
	f.Lookup("enable-admission-plugins").Usage =
		"admission plugins to switch on, in any order. Off by default are:" + list(off)
	f.Lookup("disable-admission-plugins").Usage =
		"admission plugins to switch off, in any order. On by default are:" + list(on)
}

// listWidth leaves room for flag names and types on the left.
const listWidth = 88

// list joins names with commas, on indented lines.
func list(names []string) string {
	lines := wordwrap.WrapString(strings.Join(names, ", "), listWidth)
	return "\n  " + strings.ReplaceAll(lines, "\n", "\n  ")
}
