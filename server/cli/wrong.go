package cli

import (
	"errors"
	"fmt"
	"io/fs"
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
		`\b(?:l?stat|fstat|fstatat|statat|openat|unlinkat|readlinkat|mkdirat) |` +
			`\bopen (\S+: (?:no such file or directory|permission denied|` +
			`is a directory|not a directory|file exists))`)
	// decoding is what the errors of k8s.io/apimachinery about a text that is no object look like.
	decoding = regexp.MustCompile(`couldn't get version/kind; json parse error: ` +
		`json: cannot unmarshal .* into Go value of type struct \{.*?" \}|` +
		`couldn't get version/kind; json parse error: json: [^;]*|` +
		`error unmarshaling JSON: while decoding JSON: json: cannot unmarshal ` +
		`(?:string|number|bool|array) into Go value of type [A-Za-z0-9.]+|` +
		`Object 'Kind' is missing in '(?:[^'\\]|\\.)*'`)
	// parsing is what the errors of package strconv look like.
	parsing = regexp.MustCompile(
		`strconv\.[A-Za-z]+: parsing ("(?:[^"\\]|\\.)*"): (?:invalid syntax|(value out of range))`)
)

// unreadable returns why a file cannot be read, with its name and without that of a function.
func unreadable(name string, err error) error {
	if of := new(fs.PathError); errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s cannot be read: %w; check what it is, and who may read it", name, err)
}

// plain takes the names of functions out of an error message. The places that know more about what
// went wrong say it better; this is for the errors of libraries that pass them by.
func plain(message string) string {
	message = systemCalls.ReplaceAllString(message, "$1")
	message = decoding.ReplaceAllLiteralString(message,
		"it is not an object in YAML or JSON with an apiVersion and a kind")
	return parsing.ReplaceAllStringFunc(message, func(found string) string {
		parts := parsing.FindStringSubmatch(found)
		if parts[2] != "" {
			return parts[1] + " is out of range"
		}
		return parts[1] + " is not a valid value"
	})
}
