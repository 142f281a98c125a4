package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kinproc/kinproc/server/cli/internal/standin"
	"github.com/kinproc/kinproc/server/internal/nearest"
)

// explainFlag returns an error about a flag of a command in words for people: which flag may have
// been meant, or what its value should look like.
func explainFlag(cmd *cobra.Command, err error) error {
	see := "see " + cmd.CommandPath() + " --help"
	if wrong := new(pflag.InvalidValueError); errors.As(err, &wrong) {
		return explainValue(wrong.GetFlag(), wrong.GetValue(), wrong.Unwrap())
	}
	unknown := new(pflag.NotExistError)
	if explained := standin.ExplainFlag(err); !errors.As(explained, &unknown) ||
		unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("%w (%s)", explained, see)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := nearest.To(unknown.GetSpecifiedName(), names); len(near) > 0 {
		see = "did you mean --" + strings.Join(near, " or --") + "?"
	}
	return fmt.Errorf("%w (%s)", err, see)
}

// explainValue returns why a flag cannot have a value. The libraries would say which of their
// functions has refused it.
func explainValue(flag *pflag.Flag, value string, why error) error {
	should := ""
	switch flag.Value.Type() {
	case "int", "int32", "int64", "uint", "uint32", "uint64":
		should = "is not a whole number"
		if errors.Is(why, strconv.ErrRange) {
			should = "is out of range"
		}
	case "float32", "float64":
		should = "is not a number"
	case "bool":
		should = "is neither true nor false"
	case "duration":
		should = "is not a duration, such as 30s or 1h30m"
	case "mapStringBool":
		should = "does not look like A=true,B=false"
	case "mapStringString":
		should = "does not look like name=value"
	case "stringSlice":
		should = "is not a list of words with commas between them"
	default:
		return fmt.Errorf("--%s: %w", flag.Name, why)
	}
	return fmt.Errorf("--%s: %q %s", flag.Name, value, should)
}

var (
	// systemCalls are those whose names the errors of package os begin with. To a user, the file is
	// missing, whatever the call that noticed.
	systemCalls = regexp.MustCompile(
		`\b(?:l?stat|fstat|fstatat|statat|openat|unlinkat|readlinkat|mkdirat) `)
	// parsing is what the errors of package strconv look like.
	parsing = regexp.MustCompile(
		`strconv\.[A-Za-z]+: parsing ("(?:[^"\\]|\\.)*"): (?:invalid syntax|(value out of range))`)
)

// plain takes the names of functions out of an error message. The places that know more about what
// went wrong say it better; this is for the errors of libraries that pass them by.
func plain(message string) string {
	message = systemCalls.ReplaceAllString(message, "")
	return parsing.ReplaceAllStringFunc(message, func(found string) string {
		parts := parsing.FindStringSubmatch(found)
		if parts[2] != "" {
			return parts[1] + " is out of range"
		}
		return parts[1] + " is not a valid value"
	})
}
