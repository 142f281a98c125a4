// Package option names the options of a control plane in error messages.
package option

import "fmt"

// Names says what options are called. The zero value calls them by the fields of server.Options.
type Names struct {
	// Flag, if set, returns the flag of a field. Options are called by their flags then.
	Flag func(field string) string
}

// Of returns the name of an option.
func (n Names) Of(field string) string {
	if n.Flag != nil {
		if flag := n.Flag(field); flag != "" {
			return "--" + flag
		}
	}
	return "Options." + field
}

// Wrong returns an error that names an option.
func (n Names) Wrong(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w", n.Of(field), fmt.Errorf(format, args...))
}
