package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kinproc/kinproc/chain/history"
)

func TestHistoryInColors(t *testing.T) {
	t.Parallel()
	longAgo := time.Date(2020, 1, 2, 3, 4, 5, 0, time.Local)
	v := history.Version{
		Revision: 7, Event: history.Updated, Resource: "configmaps", Name: "limits", Time: &longAgo,
		Changes: []history.Change{
			{Path: ".new", After: json.RawMessage("1")},
			{Path: ".old", Before: json.RawMessage("1")},
			{Path: ".size", Before: json.RawMessage("1"), After: json.RawMessage("2")},
		},
	}
	for colors, lines := range map[bool][]string{
		false: {"\n    + .new: 1\n", "\n    - .old: 1\n", "\n    ~ .size: 1 → 2\n"},
		true: {
			"\n    \x1b[32m+ .new: 1\x1b[0m\n", "\n    \x1b[31m- .old: 1\x1b[0m\n",
			"\n    \x1b[33m~ .size: 1 → 2\x1b[0m\n",
		},
	} {
		var text bytes.Buffer
		if err := (&pastVersions{colors: colors}).print(&text, v); err != nil {
			t.Fatal(err)
		}
		for _, line := range append(lines, "2020-01-02 03:04:05  configmaps/limits  updated") {
			if !strings.Contains(text.String(), line) {
				t.Errorf("colors: %t: %q is missing from %q", colors, line, text.String())
			}
		}
	}
	if colorful(&bytes.Buffer{}) {
		t.Error("a buffer has colors")
	}
}
