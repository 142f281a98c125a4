// Package nearest finds the names that somebody may have meant by a misspelt one.
package nearest

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// most is how many names to suggest at most.
	most = 3
	// longest is the number of bytes up to which words are compared. A comparison takes as many steps
	// as the product of the two lengths.
	longest = 100
)

// To returns the names that are most like a word, the best first: those in which fewer than half of
// the word's letters are wrong, and of those the ones with hardly more wrong letters than the best.
// If there are none, it returns names that the word is a part of. Case does not matter.
func To(word string, names []string) []string {
	if len(word) > longest {
		return nil
	}
	type candidate struct {
		name  string
		wrong int
	}
	var near, around []candidate
	lower := strings.ToLower(word)
	for _, name := range names {
		if len(name) > longest {
			continue
		}
		wrong := distance(lower, strings.ToLower(name))
		if wrong < (len(word)+1)/2 {
			near = append(near, candidate{name, wrong})
		} else if len(word) > 2 && strings.Contains(strings.ToLower(name), lower) {
			around = append(around, candidate{name, wrong})
		}
	}
	if len(near) == 0 {
		near = around
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.wrong, b.wrong) })
	var found []string
	for _, c := range near {
		if len(found) < most && c.wrong <= near[0].wrong+1 {
			found = append(found, c.name)
		}
	}
	return found
}

// Ask returns a question about the names that are most like a word, such as "did you mean status or
// start?", or nothing if there are none.
func Ask(word string, names []string) string {
	near := To(word, names)
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

// distance is the number of bytes to insert, delete or replace in order to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
