package featuregates

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Rows returns the names of the gates in the table, and what is said about each.
func Rows() (names []string, switches, follows map[string]bool) {
	switches, follows = map[string]bool{}, map[string]bool{}
	for _, row := range table {
		names = append(names, row.name)
		switch row.here {
		case switched:
			switches[row.name] = true
		case always, never:
			follows[row.name] = row.here == always
		}
	}
	return names, switches, follows
}

// List returns the gates in the form of the lists in testdata.
func (g Gates) List() []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(g.specs)) {
		spec := g.specs[name]
		line := fmt.Sprintf("%s %s %t", name, cmp.Or(string(spec.PreRelease), "GA"), spec.Default)
		if spec.LockToDefault {
			line += " locked"
		}
		lines = append(lines, line)
	}
	return lines
}
