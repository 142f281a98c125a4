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
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Source is where a setting comes from.
type Source string

// The sources, the strongest first.
const (
	fromFlag   Source = "flag"
	fromFile   Source = "kinproc.yaml"
	fromMemory Source = "remembered"
	chosen     Source = "chosen and kept" // of a port
	byDefault  Source = "default"
)

// Setting is a setting in force.
type Setting struct {
	Flag   string `json:"flag"`
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// givenFlags returns the flags among a command's arguments, with their values in order. The flags
// must have been parsed.
func givenFlags(flags *pflag.FlagSet, args []string) (map[string][]string, error) {
	given := map[string][]string{}
	err := flags.ParseAll(args, func(flag *pflag.Flag, value string) error {
		given[flag.Name] = append(given[flag.Name], value)
		return nil
	})
	return given, err
}

// inForce sets the flags that were not given to what the file, which may be nil, or else the memory
// says. It returns all settings that are not by default, by name.
func inForce(
	flags *pflag.FlagSet, given map[string][]string, file *File, m Memory,
) ([]Setting, error) {
	values, sources := map[string][]string{}, map[string]Source{}
	set := func(name string, to []string, source Source) error {
		if _, ok := values[name]; ok {
			return nil
		}
		values[name], sources[name] = to, source
		if source == fromFlag {
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
		_ = set(name, to, fromFlag) // it has been parsed
	}
	if file != nil {
		for _, e := range file.entries {
			if err := set(e.flag, []string{e.value}, fromFile); err != nil {
				return nil, file.wrong(e.line, "%s: %w", e.key, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Flags)) {
		if flag := flags.Lookup(name); flag == nil || !isRemembered(flag) {
			continue // of another version
		}
		if err := set(name, m.Flags[name], fromMemory); err != nil {
			return nil, fmt.Errorf("--%s is remembered as %q, which is invalid: %w; set it again, or start "+
				"with --forget", name, strings.Join(m.Flags[name], ","), err)
		}
	}
	if _, ok := values[nodesFlag]; !ok && file != nil && len(file.Kinds) > 0 {
		if err := flags.Set(nodesFlag, "0"); err != nil {
			return nil, err
		}
		values[nodesFlag], sources[nodesFlag] = []string{"0"}, fromFile
	}
	var all []Setting
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if isRemembered(flags.Lookup(name)) {
			all = append(all, Setting{name, strings.Join(values[name], ","), sources[name]})
		}
	}
	return all, nil
}
