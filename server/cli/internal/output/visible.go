// Package output makes what commands print: text that is safe for a terminal, errors in plain
// words, tables, JSON, and what a shell takes.
package output

import (
	"bufio"
	"errors"
	"io"
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

// Line returns a text in which every character is visible, and which is one line.
func Line(text string) string { return strings.Map(visible, text) }

// Lines is like Line, but keeps lines and tabs.
func Lines(text string) string { return strings.Map(visibleInLines, text) }

func visibleInLines(r rune) rune {
	if r == '\n' || r == '\t' {
		return r
	}
	return visible(r)
}

// Copy copies text like Lines.
func Copy(w io.Writer, from io.Reader) error {
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
