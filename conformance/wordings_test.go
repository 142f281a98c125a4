package conformance_test

import (
	"bufio"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

const wordingsFile = "testdata/wordings.txt"

var updateWordings = flag.Bool("update-wordings", false, "write "+wordingsFile)

// wordings are the causes of refusals whose text differs from the recorded one, by recording.
// Clients match some texts, so the differences are listed: a new one is a mistake, or is added to
// the list on purpose.
type wordings struct {
	mu    sync.Mutex
	found map[string][]string
}

// begin returns the function that notes a difference of a recording that is replayed from the
// start.
func (w *wordings) begin(recording string) func(file, difference string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found[recording] = nil
	return func(file, difference string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.found[file] = append(w.found[file], file+"/"+difference)
	}
}

// check compares the differences of the replayed recordings with the list.
func (w *wordings) check(t *testing.T, replayed map[string]bool) {
	t.Helper()
	var got []string
	for file := range replayed {
		got = append(got, w.found[file]...)
	}
	slices.Sort(got)
	if *updateWordings {
		text := strings.Join(got, "\n") + "\n"
		if err := os.WriteFile(wordingsFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	list, err := os.Open(wordingsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	var want []string
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		if file, _, _ := strings.Cut(lines.Text(), "/"); replayed[file] {
			want = append(want, lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("another text: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("no longer differs: remove it from %s: %s", wordingsFile, line)
		}
	}
}
