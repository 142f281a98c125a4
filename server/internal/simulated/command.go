package simulated

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// understand returns what a container does if its command is one of
//
//	true, false, sleep DURATION…, echo …
//
// or a script for a shell that consists of such commands and "exit CODE". Nothing is run. Users
// write such commands to see how the control plane reacts, so the simulation takes them at their
// word.
func understand(c *corev1.Container) (behavior, bool) {
	words := wordsOf(c)
	if len(words) == 0 {
		return behavior{}, false
	}
	switch path.Base(words[0]) {
	case "sh", "bash", "ash":
		if len(words) != 3 || words[1] != "-c" {
			return behavior{}, false
		}
		return script(words[2])
	}
	b, _, ok := simple(words)
	return b, ok
}

func wordsOf(c *corev1.Container) []string { return slices.Concat(c.Command, c.Args) }

// goesOn reports whether a command that [understand] does not know clearly goes on until it is
// stopped: a shell that waits for its input, or a script that follows a file or never leaves a
// loop.
func goesOn(c *corev1.Container) bool {
	words := wordsOf(c)
	if c.Stdin && isInteractive(words) || len(words) == 1 && path.Base(words[0]) == "pause" {
		return true
	}
	text := strings.Join(words, " ")
	for _, loop := range []string{"while true", "while :", "while sleep"} {
		_, body, ok := strings.Cut(text, loop)
		if ok && !strings.Contains(body, "break") && !strings.Contains(body, "exit") {
			return true
		}
	}
	return slices.ContainsFunc([]string{"tail -f", "tail -F", "sleep inf"}, func(part string) bool {
		return strings.Contains(text, part)
	})
}

// sleeping finds the words of a script that let it sleep.
var sleeping = regexp.MustCompile(`\bsleep ([0-9.]+[smhd]?)\b`)

// sleeps returns how long a command sleeps that [understand] does not know, if it does so once in
// each place.
func sleeps(c *corev1.Container) (total time.Duration) {
	for _, found := range sleeping.FindAllStringSubmatch(strings.Join(wordsOf(c), " "), -1) {
		if d, ok := sleepDuration(found[1]); ok && total < math.MaxInt64-d {
			total += d
		}
	}
	return total
}

// script returns what a sequence of commands does.
func script(text string) (behavior, bool) {
	var all behavior
	var output strings.Builder
	if strings.ContainsAny(text, "\"'`\\$|<>(){}[]*?#") {
		return all, false // everything that is not plain words
	}
	text = strings.NewReplacer("\n", ";", "&&", ";&&").Replace(text)
	for command := range strings.SplitSeq(text, ";") {
		command, onSuccess := strings.CutPrefix(strings.TrimSpace(command), "&&")
		words := strings.Fields(command)
		if len(words) == 0 || onSuccess && all.code != 0 {
			continue
		}
		if strings.Contains(command, "&") {
			return all, false
		}
		next, exits, ok := simple(words)
		if !ok {
			return all, false
		}
		if exits && len(words) == 1 {
			next.code = all.code // that of the command before
		}
		all.runs, all.code = all.runs+next.runs, next.code
		output.WriteString(next.output)
		all.forever = next.forever || all.runs < 0 // the sum is too large
		if exits || all.forever {
			break
		}
	}
	all.output = output.String()
	return all, true
}

// simple returns what one command does, and whether it ends the script.
func simple(words []string) (b behavior, exits, ok bool) {
	switch path.Base(words[0]) {
	case "true", ":":
		return b, false, true
	case "echo":
		b.output = strings.Join(words[1:], " ") + "\n"
		return b, false, true
	case "false":
		b.code = 1
		return b, false, true
	case "exit":
		if len(words) == 1 {
			return b, true, true
		}
		code, err := strconv.ParseUint(words[1], 10, 8)
		b.code = int32(code)
		return b, true, err == nil && len(words) == 2
	case "sleep":
		for _, word := range words[1:] {
			d, ok := sleepDuration(word)
			if !ok {
				return b, false, false
			}
			b.runs += d
			b.forever = b.forever || d == math.MaxInt64 || b.runs < 0 // the sum is too large
		}
		return b, false, len(words) > 1
	}
	return b, false, false
}

// sleepDuration parses an argument of sleep: a number with s, m, h, d or nothing, or "infinity".
func sleepDuration(word string) (time.Duration, bool) {
	if word == "infinity" || word == "inf" {
		return math.MaxInt64, true
	}
	if word == "" {
		return 0, false
	}
	unit := time.Second
	switch last := word[len(word)-1]; last {
	case 's', 'm', 'h', 'd':
		unit = map[byte]time.Duration{
			's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour,
		}[last]
		word = word[:len(word)-1]
	}
	count, err := strconv.ParseFloat(word, 64)
	if err != nil || count < 0 || math.IsNaN(count) {
		return 0, false
	}
	if total := count * float64(unit); total < math.MaxInt64/4 {
		return time.Duration(total), true
	}
	return math.MaxInt64, true
}
