package output

import (
	"fmt"
	"runtime"
	"strings"
	"unicode"
)

// SetKubeconfig returns the command that makes kubectl use a kubeconfig, for this platform's usual
// shell.
func SetKubeconfig(path string) string {
	if runtime.GOOS == "windows" {
		return "$env:KUBECONFIG = " + ForShell(path)
	}
	return "export KUBECONFIG=" + ForShell(path)
}

// ForShell quotes a path for this platform's usual shell, if it needs that.
func ForShell(path string) string {
	if runtime.GOOS == "windows" {
		return "'" + strings.ReplaceAll(path, "'", "''") + "'"
	}
	if Line(path) != path { // then the quotes of bash, zsh and ksh
		return "$'" + inOctal(path) + "'"
	}
	if strings.ContainsFunc(path, func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N) && !strings.ContainsRune("/._-+:@", r)
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// inOctal writes all but plain characters as \NNN, which the quotes of ForShell understand.
func inOctal(text string) string {
	var quoted strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&quoted, "\\%03o", c)
		} else {
			quoted.WriteByte(c)
		}
	}
	return quoted.String()
}
