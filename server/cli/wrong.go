package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/sandbox"
	"github.com/kinproc/kinproc/server/cli/internal/standin"
	"github.com/kinproc/kinproc/server/internal/nearest"
	"github.com/kinproc/kinproc/server/serverflags"
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
		should = "is not of the form A=true,B=false"
	case "mapStringString":
		should = "is not of the form name=value"
	case "stringSlice":
		should = "is not a list of words with commas between them"
	default:
		return fmt.Errorf("--%s: %w", flag.Name, why)
	}
	return fmt.Errorf("--%s: %q %s", flag.Name, value, should)
}

// checkSetting returns what is wrong with a value of a flag, without the flag's name. Each value is
// checked as if it were the only one.
func checkSetting(flag, value string) error {
	switch flag {
	case "name":
		return sandbox.CheckName(value)
	case "dashboard":
		if _, err := strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		return nil
	}
	var sections cliflag.NamedFlagSets
	var o server.Options
	serverflags.Add(&o, &sections)
	for _, set := range sections.FlagSets {
		f := set.Lookup(flag)
		if f == nil {
			continue
		}
		err := set.Set(flag, value)
		if wrong := new(pflag.InvalidValueError); errors.As(err, &wrong) {
			err = explainValue(f, value, wrong.Unwrap())
		}
		if err == nil {
			err = errors.Join(o.Validate()...)
		}
		if err == nil {
			return nil
		}
		message := output.Plain(err)
		for _, prefix := range []string{"--" + flag + ": ", flag + ": "} {
			message = strings.ReplaceAll(message, prefix, "")
		}
		return errors.New(message)
	}
	return fmt.Errorf("there is no flag --%s", flag)
}
