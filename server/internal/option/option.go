// Package option names the options of a control plane in error messages.
package option

import "fmt"

// Names says what options are called: by their flags, or by the fields of server.Options.
type Names struct{ Flags bool }

// Of returns the name of an option.
func (n Names) Of(field, flag string) string {
	if n.Flags {
		return "--" + flag
	}
	return "Options." + field
}

// Wrong returns an error that names an option.
func (n Names) Wrong(field, flag, format string, args ...any) error {
	return fmt.Errorf("%s: %w", n.Of(field, flag), fmt.Errorf(format, args...))
}
