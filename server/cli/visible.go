package cli

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// visible returns what to print for a character. Control characters, and those that turn the
// direction of text, become pictures: what comes from a file may have come with a repository, and
// must not act on the terminal or look like another message.
func visible(r rune) rune {
	switch {
	case r < ' ':
		return '␀' + r
	case r == 0x7f:
		return '␡'
	case !unicode.IsGraphic(r):
		return unicode.ReplacementChar
	}
	return r
}

// oneLineOf returns a text in which every character is visible, and which is one line.
func oneLineOf(text string) string { return strings.Map(visible, text) }

// linesOf is like oneLineOf, but keeps lines and tabs.
func linesOf(text string) string { return strings.Map(visibleInLines, text) }

func visibleInLines(r rune) rune {
	if r == '\n' || r == '\t' {
		return r
	}
	return visible(r)
}

// shownName returns the name of a sandbox, in quotes if kinproc has not given it.
func shownName(name string) string {
	if validName.MatchString(name) {
		return name
	}
	return oneLineOf(strconv.Quote(name))
}

// copyVisible copies text like linesOf.
func copyVisible(w io.Writer, from io.Reader) error {
	in, out := bufio.NewReader(from), bufio.NewWriter(w)
	for {
		r, _, err := in.ReadRune()
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err == nil {
			_, err = out.WriteRune(visibleInLines(r))
		}
		if err != nil {
			return err
		}
	}
}
