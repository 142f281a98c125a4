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
	// longest is the number of bytes up to which words are compared. A comparison takes as many
	// steps as the product of the two lengths.
	longest = 100
)

// To returns the names that are most like a word, the best first: those in which at most a third of
// the word's letters are wrong, and of those the ones with hardly more wrong letters than the best.
// If there are none, it returns names in which a word begins with it. Case does not matter.
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
		if wrong <= (len(word)+1)/3 {
			near = append(near, candidate{name, wrong})
		} else if len(word) > 2 && hasWord(name, lower) {
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

// hasWord reports whether one of the words of a name, as in words-of-a-name and WordsOfAName,
// begins with a text in lower case.
func hasWord(name, lower string) bool {
	for i := range len(name) - len(lower) + 1 {
		begins := i == 0 || !isLetter(name[i-1]) || isUpper(name[i]) && !isUpper(name[i-1])
		if begins && strings.EqualFold(name[i:i+len(lower)], lower) {
			return true
		}
	}
	return false
}

func isUpper(b byte) bool  { return 'A' <= b && b <= 'Z' }
func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

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
