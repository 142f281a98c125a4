package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kinproc/kinproc/server/cli/internal/output"
	"github.com/kinproc/kinproc/server/cli/internal/private"
)

// Settled are the settings in force, and where they come from.
type Settled struct {
	Memory  Memory    // of the data directory
	File    *File     // nil if there is none
	InForce []Setting // those that are not by default

	flags *pflag.FlagSet
	given map[string][]string // the flags of this start
}

// Sources say where settings may come from besides the flags.
type Sources struct {
	// DataDir is the data directory, which remembers settings. It may be empty.
	DataDir string
	// Adopt is true if somebody else may have made the data directory.
	Adopt bool
	// Forget is true to do without the flags of earlier starts.
	Forget bool
	// Config is the file to use instead of kinproc.yaml, if a flag says so.
	Config string
	// Without are flags that the file does not set here.
	Without []string
	// Check returns what is wrong with a value of a flag, without the flag's name.
	Check func(flag, value string) error
}

// WrongError says which setting is wrong.
type WrongError struct{ error }

// Unwrap returns the reason.
func (e WrongError) Unwrap() error { return e.error }

// Settle sets what the flags leave open to what kinproc.yaml says, or else to what the data
// directory remembers. The arguments are those of which the flags were parsed.
func Settle(flags *pflag.FlagSet, args []string, from Sources) (s Settled, err error) {
	s.flags = flags
	if s.given, err = givenFlags(flags, args); err != nil {
		return s, err
	}
	if from.DataDir != "" {
		if s.Memory, err = ReadMemory(from.DataDir, from.Adopt); err != nil {
			return s, err
		}
	}
	if from.Forget {
		s.Memory.Flags = nil
	}
	if s.File, err = s.readFile(from); err != nil {
		return s, err
	}
	if s.InForce, err = inForce(flags, s.given, s.File, s.Memory); err != nil {
		return s, WrongError{err}
	}
	return s, nil
}

// readFile reads the file that --config names, or the one of the working directory, if there is
// one.
func (s *Settled) readFile(from Sources) (*File, error) {
	remembered := s.Memory.Flags["config"]
	path, named := from.Config, len(s.given["config"]) > 0
	if !named && len(remembered) > 0 {
		path, named = remembered[len(remembered)-1], true
	}
	if named && path == "" {
		return nil, nil
	}
	if path = cmp.Or(path, fileName); named {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			path = target
		}
	}
	work, err := private.OpenWork(filepath.Dir(path), named)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer work.Close()
	data, err := work.Read(filepath.Base(path))
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
	file, err := ReadFile(path, data, from.Check)
	if err != nil {
		return nil, WrongError{err}
	}
	file.entries = slices.DeleteFunc(file.entries, func(e entry) bool {
		return slices.Contains(from.Without, e.flag)
	})
	return file, nil
}

// IsGiven reports whether this start has a flag.
func (s *Settled) IsGiven(flag string) bool { return len(s.given[flag]) > 0 }

// ConfigNamed reports whether the user has named the file in the place of kinproc.yaml.
func (s *Settled) ConfigNamed() bool {
	return s.IsGiven("config") || len(s.Memory.Flags["config"]) > 0
}

// Lookup returns a setting, and whether it is not by default.
func (s *Settled) Lookup(flag string) (Setting, bool) {
	for _, in := range s.InForce {
		if in.Flag == flag {
			return in, true
		}
	}
	return Setting{}, false
}

// setting returns a setting, which may be by default.
func (s *Settled) setting(flag string) Setting {
	if in, ok := s.Lookup(flag); ok {
		return in
	}
	return Setting{Flag: flag, Source: byDefault, Value: s.flags.Lookup(flag).Value.String()}
}

// portFlag is the flag with the port.
const portFlag = "secure-port"

// Describe returns the settings of a sandbox by its name and port: the most important ones in any
// case, and all that are not by default.
func (s *Settled) Describe(name string, port int) []Setting {
	called := s.setting("name")
	called.Value = name
	listens := s.setting(portFlag)
	flag := s.flags.Lookup(portFlag)
	if flag.Value.String() == "0" || listens.Source == byDefault {
		switch number := strconv.Itoa(port); {
		case s.IsGiven(portFlag):
			listens.Value = number
		case s.Memory.Port == port:
			listens = Setting{Flag: portFlag, Value: number, Source: fromMemory}
		case number != flag.DefValue:
			listens = Setting{Flag: portFlag, Value: number, Source: chosen}
		}
	}
	all := []Setting{called, listens, s.setting(nodesFlag)}
	if s.File != nil {
		for _, k := range s.File.Kinds {
			all = append(all, Setting{
				Flag: "", Value: fmt.Sprintf("%d nodes of kind %s", k.Count, k.Name), Source: fromFile,
			})
		}
	}
	for _, in := range s.InForce {
		if !slices.ContainsFunc(all, func(other Setting) bool { return other.Flag == in.Flag }) {
			all = append(all, in)
		}
	}
	return all
}

// NotOfThisStart returns the settings of a sandbox that come from kinproc.yaml or earlier starts.
func (s *Settled) NotOfThisStart(name string) []Setting {
	return slices.DeleteFunc(s.Describe(name, s.Memory.Port), func(in Setting) bool {
		return in.Flag == portFlag || // the URL has it
			in.Source != fromFile && in.Source != fromMemory
	})
}

// Print prints settings with their sources, aligned.
func Print(w io.Writer, all []Setting) {
	lines, width := make([]string, len(all)), 0
	for i, s := range all {
		lines[i] = output.Line(s.Value)
		if s.Flag != "" {
			lines[i] = "--" + output.Line(s.Flag) + "=" + lines[i]
		}
		width = max(width, len(lines[i]))
	}
	for i, s := range all {
		fmt.Fprintf(w, "  %-*s  %s\n", width, lines[i], output.Line(string(s.Source)))
	}
}

// Nodes returns the numbers of simulated nodes, by kind.
func (s *Settled) Nodes() (byKind map[string]int, all int) {
	all, _ = strconv.Atoi(s.flags.Lookup(nodesFlag).Value.String()) // it is one
	byKind = map[string]int{"": all}
	if s.File != nil {
		for _, k := range s.File.Kinds {
			byKind[k.Name] = k.Count
			all += k.Count
		}
	}
	return byKind, all
}

// RemovedNodes returns the names of the simulated nodes of the last start that will go.
func (s *Settled) RemovedNodes() (names []string) {
	if len(s.Memory.Nodes) == 0 {
		return nil
	}
	now, _ := s.Nodes()
	for _, kind := range slices.Sorted(maps.Keys(s.Memory.Nodes)) {
		prefix := "simulated-"
		if kind != "" {
			prefix += kind + "-"
		}
		for i := now[kind]; i < s.Memory.Nodes[kind]; i++ {
			names = append(names, prefix+strconv.Itoa(i))
		}
	}
	return names
}

// Remember notes what was given, for the next start in the same data directory. A kubeconfig is one
// to which the sandbox was added. If the start is read-only, nodes and manifests are as they were.
func (s *Settled) Remember(dir string, port int, kubeconfig string, readOnly bool) error {
	m := s.Memory
	if err := m.learn(s.flags, s.given); err != nil {
		return err
	}
	if setting, ok := s.Lookup(portFlag); !ok || setting.Value == "0" {
		m.Port = port
		delete(m.Flags, portFlag)
	}
	if !readOnly {
		m.Nodes, _ = s.Nodes()
	}
	if s.File != nil && !readOnly {
		for _, manifest := range s.File.Manifests {
			if !slices.Contains(m.Applied, manifest.Path) {
				m.Applied = append(slices.Clip(m.Applied), manifest.Path)
			}
		}
	}
	m.Keys = hashKeys(dir)
	if kubeconfig != "" {
		m.addKubeconfig(kubeconfig)
	}
	return m.write(dir)
}

// Recall adds to an error about settings what has been remembered, which may be the cause.
func (s *Settled) Recall(err error) error {
	var remembered []string
	for _, in := range s.InForce {
		if in.Source == fromMemory {
			remembered = append(remembered, "--"+in.Flag+"="+in.Value)
		}
	}
	if len(remembered) == 0 {
		return err
	}
	return fmt.Errorf("%w; remembered from earlier starts: %s (--forget discards them)", err,
		strings.Join(remembered, " "))
}
