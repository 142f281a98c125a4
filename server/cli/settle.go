package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mitchellh/go-wordwrap"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
)

// settled is where the settings of a start come from.
type settled struct {
	flags   *pflag.FlagSet
	given   map[string][]string // the flags of this start
	memory  settings.Memory     // of the data directory
	file    *settings.File      // nil if there is none
	inForce []settings.Setting  // those that are not by default
}

// settle sets what the flags leave open to what kinproc.yaml says, or else to what the data
// directory remembers.
func (o *startOptions) settle(flags *pflag.FlagSet, args []string) error {
	given, err := settings.Given(flags, args)
	if err != nil {
		return err
	}
	o.flags, o.given = flags, given
	if !o.ephemeral {
		if o.memory, err = readMemory(o.server.DataDir, o.adopt); err != nil {
			return err
		}
	}
	if o.forget {
		o.memory.Flags = nil
	}
	if o.file, err = o.readFile(); err != nil {
		return err
	}
	if o.inForce, err = settings.InForce(flags, given, o.file, o.memory); err != nil {
		return usageError{err}
	}
	if o.file != nil {
		o.server.SimulatedNodeKinds = o.file.Kinds
	}
	return nil
}

// readFile reads the file that --config names, or the one of the working directory, if there is
// one.
func (o *startOptions) readFile() (*settings.File, error) {
	remembered := o.memory.Flags["config"]
	path, named := o.config, len(o.given["config"]) > 0
	if !named && len(remembered) > 0 {
		path, named = remembered[len(remembered)-1], true
	}
	if named && path == "" {
		return nil, nil
	}
	if path = cmp.Or(path, settings.FileName); named {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			path = target
		}
	}
	work, err := openWork(filepath.Dir(path), os.Geteuid(), named)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer work.close()
	data, err := work.read(filepath.Base(path))
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("--config: there is no file %s; name another one, or none with --config=",
			path)
	case err != nil && !named:
		return nil, fmt.Errorf("%s in the working directory is not trusted: %w; if you trust it, "+
			"name it with --config, and if not, start with --config=", path, err)
	case err != nil:
		return nil, fmt.Errorf("--config: %w", err)
	}
	file, err := settings.ReadFile(path, data, checkSetting)
	if err != nil {
		return nil, usageError{err}
	}
	return file, nil
}

// checkSetting returns what is wrong with a value of a flag, without the flag's name. Each value is
// checked as if it were the only one.
func checkSetting(flag, value string) error {
	if flag == "name" {
		return validateName(value)
	}
	var sections cliflag.NamedFlagSets
	var o server.Options
	o.AddFlags(&sections)
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
		message := oneLine(err)
		for _, prefix := range []string{"--" + flag + ": ", flag + ": "} {
			message = strings.ReplaceAll(message, prefix, "")
		}
		return errors.New(plain(message))
	}
	return fmt.Errorf("there is no flag --%s", flag)
}

// setTo returns a setting, and whether it is not by default.
func (o *startOptions) setTo(flag string) (settings.Setting, bool) {
	for _, s := range o.inForce {
		if s.Flag == flag {
			return s, true
		}
	}
	return settings.Setting{}, false
}

// setting returns a setting, which may be by default.
func (o *startOptions) setting(flag string) settings.Setting {
	if s, ok := o.setTo(flag); ok {
		return s
	}
	return settings.Setting{Flag: flag, Source: settings.ByDefault,
		Value: o.flags.Lookup(flag).Value.String()}
}

// describe returns the settings of a running sandbox: the most important ones in any case, and all
// that are not by default.
func (o *startOptions) describe(name string, port int) []settings.Setting {
	called := o.setting("name")
	called.Value = name
	listens := o.setting("secure-port")
	if o.server.SecurePort == 0 || listens.Source == settings.ByDefault {
		switch number := strconv.Itoa(port); {
		case len(o.given["secure-port"]) > 0:
			listens.Value = number
		case o.memory.Port == port:
			listens = settings.Setting{Flag: "secure-port", Value: number, Source: settings.FromMemory}
		case port != defaultSecurePort:
			listens = settings.Setting{Flag: "secure-port", Value: number, Source: settings.Chosen}
		}
	}
	all := []settings.Setting{called, listens, o.setting("simulate-nodes")}
	for _, k := range o.server.SimulatedNodeKinds {
		all = append(all, settings.Setting{
			Flag: "", Value: fmt.Sprintf("%d nodes of kind %s", k.Count, k.Name), Source: settings.FromFile,
		})
	}
	for _, s := range o.inForce {
		if !slices.ContainsFunc(all, func(other settings.Setting) bool { return other.Flag == s.Flag }) {
			all = append(all, s)
		}
	}
	return all
}

// notOfThisStart returns the settings that come from kinproc.yaml or earlier starts.
func (o *startOptions) notOfThisStart() []settings.Setting {
	return slices.DeleteFunc(o.describe(o.name, o.memory.Port), func(s settings.Setting) bool {
		return s.Flag == "secure-port" || // the URL has it
			s.Source != settings.FromFile && s.Source != settings.FromMemory
	})
}

// configNamed reports whether the user has named the file in the place of kinproc.yaml.
func (o *startOptions) configNamed() bool {
	return len(o.given["config"]) > 0 || len(o.memory.Flags["config"]) > 0
}

// printSettings prints settings with their sources, aligned.
func printSettings(w io.Writer, all []settings.Setting) {
	lines, width := make([]string, len(all)), 0
	for i, s := range all {
		lines[i] = oneLineOf(s.Value)
		if s.Flag != "" {
			lines[i] = "--" + oneLineOf(s.Flag) + "=" + lines[i]
		}
		width = max(width, len(lines[i]))
	}
	for i, s := range all {
		fmt.Fprintf(w, "  %-*s  %s\n", width, lines[i], oneLineOf(string(s.Source)))
	}
}

// nodes returns the numbers of simulated nodes, by kind.
func (o *startOptions) nodes() (byKind map[string]int, all int) {
	byKind = map[string]int{"": o.server.SimulatedNodes}
	all = o.server.SimulatedNodes
	for _, k := range o.server.SimulatedNodeKinds {
		byKind[k.Name] = k.Count
		all += k.Count
	}
	return byKind, all
}

// named is how many nodes to name in a message.
const named = 3

// warnShrinking says which simulated nodes of the last start will go.
func (o *startOptions) warnShrinking(w io.Writer) {
	if o.server.ReadOnly {
		return // then they stay
	}
	now, _ := o.nodes()
	var gone []string
	number := 0
	for _, kind := range sortedKeys(o.memory.Nodes) {
		prefix := "simulated-"
		if kind != "" {
			prefix += kind + "-"
		}
		for i := now[kind]; i < o.memory.Nodes[kind]; i++ {
			if number++; number <= named {
				gone = append(gone, prefix+strconv.Itoa(i))
			}
		}
	}
	if number == 0 {
		return
	}
	if number > named {
		gone = append(gone, fmt.Sprintf("%d more", number-named))
	}
	list := strings.Join(gone, ", ")
	if i := strings.LastIndex(list, ", "); i >= 0 {
		list = list[:i] + " and " + list[i+2:]
	}
	verb := "are"
	if number == 1 {
		verb = "is"
	}
	fmt.Fprintf(w, "kinproc: there are fewer simulated nodes than before: %s %s deleted, with the "+
		"pods that are bound there; controllers replace theirs\n", list, verb)
}

// explain prints what is in force in the working directory and where it comes from.
func (o *startOptions) explain(w io.Writer, flags *pflag.FlagSet, args []string) {
	err := o.settle(flags, args)
	switch {
	case err != nil:
		fmt.Fprintf(w, "\nWhat is in force here cannot be said: %s\n", oneLineOf(plain(oneLine(err))))
		return
	case len(o.inForce) == 0 && o.memory.Port == 0 && len(o.server.SimulatedNodeKinds) == 0:
		fmt.Fprint(w, "\nIn force here are the defaults.\n")
		return
	}
	fmt.Fprint(w, "\nIn force here, besides the defaults:\n\n")
	printSettings(w, o.describe(cmp.Or(o.name, nameFor(o.server.DataDir)),
		cmp.Or(o.memory.Port, o.server.SecurePort)))
}

// wrap breaks a list of flags into lines of the help.
func wrap(list string) string {
	return strings.TrimSpace(wordwrap.WrapString(list+".", 95))
}

// recall adds to an error about settings what has been remembered, which may be the cause.
func (o *startOptions) recall(err error) error {
	var remembered []string
	for _, setting := range o.inForce {
		if setting.Source == settings.FromMemory {
			remembered = append(remembered, "--"+setting.Flag+"="+setting.Value)
		}
	}
	if len(remembered) == 0 {
		return err
	}
	return fmt.Errorf("%w; remembered of earlier starts: %s (--forget does without)", err,
		strings.Join(remembered, " "))
}
