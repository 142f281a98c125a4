// Package settings decides which settings of kinproc start are in force, and says where each comes
// from. In the order of precedence, they come from
//
//  1. the flags of this start,
//  2. a file kinproc.yaml, see [ReadFile],
//  3. the flags of earlier starts in the same data directory, see [Memory],
//  4. the defaults.
package settings

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Source is where a setting comes from.
type Source string

// The sources, the strongest first.
const (
	FromFlag   Source = "flag"
	FromFile   Source = "kinproc.yaml"
	FromMemory Source = "remembered"
	Chosen     Source = "chosen and kept" // of a port
	ByDefault  Source = "default"
)

// Setting is a setting in force.
type Setting struct {
	Flag   string `json:"flag"`
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Given returns the flags among a command's arguments, with their values in order. The flags must
// have been parsed.
func Given(flags *pflag.FlagSet, args []string) (map[string][]string, error) {
	given := map[string][]string{}
	err := flags.ParseAll(args, func(flag *pflag.Flag, value string) error {
		given[flag.Name] = append(given[flag.Name], value)
		return nil
	})
	return given, err
}

// once are the flags that are about one start, and not about the cluster.
func once() []string {
	return []string{
		"adopt", "dashboard", "dashboard-address", "dashboard-writes", "data-dir", "detach", "ephemeral",
		"forget", "from", "help", "kubeconfig", "timings", "v",
	}
}

// Once describes them for the help.
func Once() string { return "--" + strings.Join(once(), ", --") }

// IsRemembered reports whether a later start in the same data directory uses a flag again.
func IsRemembered(flag *pflag.Flag) bool {
	return !flag.Hidden && !slices.Contains(once(), flag.Name)
}

// isPath reports whether the values of a flag are paths. They are remembered as absolute ones,
// because the next start may be in another working directory.
func isPath(flag string) bool {
	switch flag {
	case "authentication-config", "authorization-config", "encryption-provider-config", "config":
		return true
	}
	for _, suffix := range []string{"-file", "-path", "-dir", "-cafile", "-certfile", "-keyfile"} {
		if strings.HasSuffix(flag, suffix) {
			return true
		}
	}
	return false
}

// Memory is what a data directory remembers of its starts.
type Memory struct {
	// Flags are the flags that were given, with their values in order.
	Flags map[string][]string `json:"flags,omitempty"`
	// Port is the port that was chosen, because no flag named one.
	Port int `json:"port,omitempty"`
	// Nodes are the numbers of simulated nodes at the last start, by the name of their kind, which is
	// empty for those of no kind.
	Nodes map[string]int `json:"nodes,omitempty"`
	// Applied are the manifests of the file that have been applied.
	Applied []string `json:"applied,omitempty"`
	// Kubeconfigs are the kubeconfigs to which the sandbox's context was added.
	Kubeconfigs []string `json:"kubeconfigs,omitempty"`
	// Keys are the hashes of the private keys that are never replaced, by the names of their files.
	Keys map[string]string `json:"keys,omitempty"`
}

// Learn adds the flags of a start to the memory. Flags that were given before change.
func (m *Memory) Learn(flags *pflag.FlagSet, given map[string][]string) error {
	learnt := maps.Clone(m.Flags)
	if learnt == nil {
		learnt = map[string][]string{}
	}
	for name, values := range given {
		if !IsRemembered(flags.Lookup(name)) {
			continue
		}
		learnt[name] = slices.Clone(values)
		if !isPath(name) {
			continue
		}
		for i, path := range learnt[name] {
			if path == "" || path == "-" { // none, and standard output
				continue
			}
			absolute, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			learnt[name][i] = absolute
		}
	}
	m.Flags = learnt
	return nil
}

// InForce sets the flags that were not given to what the file, which may be nil, or else the memory
// says. It returns all settings that are not by default, by name.
func InForce(
	flags *pflag.FlagSet, given map[string][]string, file *File, m Memory,
) ([]Setting, error) {
	values, sources := map[string][]string{}, map[string]Source{}
	set := func(name string, to []string, source Source) error {
		if _, ok := values[name]; ok {
			return nil
		}
		values[name], sources[name] = to, source
		if source == FromFlag {
			return nil
		}
		for _, value := range to {
			if err := flags.Set(name, value); err != nil {
				return err
			}
		}
		return nil
	}
	for name, to := range given {
		_ = set(name, to, FromFlag) // it has been parsed
	}
	if file != nil {
		for _, e := range file.entries {
			if err := set(e.flag, []string{e.value}, FromFile); err != nil {
				return nil, file.wrong(e.line, "%s: %w", e.key, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Flags)) {
		if flag := flags.Lookup(name); flag == nil || !IsRemembered(flag) {
			continue // of another version
		}
		if err := set(name, m.Flags[name], FromMemory); err != nil {
			return nil, fmt.Errorf("--%s is remembered as %q, which is wrong: %w; give it again, or start "+
				"with --forget", name, strings.Join(m.Flags[name], ","), err)
		}
	}
	if _, ok := values[nodesFlag]; !ok && file != nil && len(file.Kinds) > 0 {
		if err := flags.Set(nodesFlag, "0"); err != nil {
			return nil, err
		}
		values[nodesFlag], sources[nodesFlag] = []string{"0"}, FromFile
	}
	var all []Setting
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if IsRemembered(flags.Lookup(name)) {
			all = append(all, Setting{name, strings.Join(values[name], ","), sources[name]})
		}
	}
	return all, nil
}

// nodesFlag is the flag with the number of nodes of no kind.
const nodesFlag = "simulate-nodes"
