package featuregates

import "fmt"

// Table returns the table in the form of the list in testdata.
func Table() []string {
	var lines []string
	for _, g := range table {
		line := fmt.Sprintf("%s %s %t", g.name, g.stage, g.value.on())
		if g.value.locked() {
			line += " locked"
		}
		lines = append(lines, line)
	}
	return lines
}

// Switched returns the names of the gates that the table says are switched.
func Switched() []string {
	var names []string
	for _, g := range table {
		if g.here == switched {
			names = append(names, g.name)
		}
	}
	return names
}
