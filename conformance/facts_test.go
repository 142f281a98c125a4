package conformance_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// facts is a set of lines, each of which states something about a server.
type facts map[string]bool

// expectedFacts returns the facts in the file recording, changed by the file differences. A line of
// differences is "- " and a fact to leave out, "+ " and a fact to add, or "# " and a comment.
func expectedFacts(t *testing.T, recording, differences string) facts {
	t.Helper()
	want := facts{}
	for fact := range strings.Lines(string(unzip(t, recording))) {
		want[strings.TrimSuffix(fact, "\n")] = true
	}
	changes, err := os.ReadFile(differences)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(changes)) {
		line = strings.TrimSuffix(line, "\n")
		switch sign, fact, _ := strings.Cut(line, " "); {
		case sign == "-" && want[fact]:
			delete(want, fact)
		case sign == "+" && !want[fact]:
			want[fact] = true
		case sign != "#":
			t.Errorf("%s: %q does not differ from %s", differences, line, recording)
		}
	}
	return want
}

// differences returns the facts that are missing in got with "- ", and those that only got has with
// "+ ".
func (f facts) differences(got facts) []string {
	var lines []string
	for _, fact := range slices.Sorted(maps.Keys(f)) {
		if !got[fact] {
			lines = append(lines, "- "+fact)
		}
	}
	for _, fact := range slices.Sorted(maps.Keys(got)) {
		if !f[fact] {
			lines = append(lines, "+ "+fact)
		}
	}
	return lines
}

// record writes the facts to a recording.
func (f facts) record(t *testing.T, recording string) {
	t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	for _, fact := range slices.Sorted(maps.Keys(f)) {
		if _, err := w.Write([]byte(fact + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recording, zipped.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unzip returns what a file compressed by gzip holds.
func unzip(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
