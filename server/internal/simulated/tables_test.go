package simulated

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// TestAttackTablesOfCommands has tables that cost much more than they are large.
func TestAttackTablesOfCommands(t *testing.T) {
	t.Parallel()
	const tooMany = "has more than 1000 commands"
	text := strings.Repeat("A", 300_000)
	several := map[string]string{}
	for i := range maxCommands + 1 {
		several[fmt.Sprint(i)] = ""
	}
	for name, test := range map[string]struct {
		data map[string]string
		want string
	}{
		"aliases": {
			map[string]string{"a": "- command: x\n  stdout: &a \"" + text + "\"\n" +
				strings.Repeat("- {command: y, stdout: *a}\n", 15_000)},
			`has at "a" a table that is too large: the aliases in a YAML document of `,
		},
		"items":     {map[string]string{"a": strings.Repeat("- {}\n", 200_000)}, tooMany},
		"of spaces": {map[string]string{"a": "# a\n" + strings.Repeat("  -\n", 200_000)}, tooMany},
		"in brackets": {
			map[string]string{"a": "[" + strings.Repeat("{command: a},", 2000) + "]"}, tooMany,
		},
		"in two keys": {
			map[string]string{
				"a": strings.Repeat("- command: a\n", 600), "b": strings.Repeat("- command: a\n", 600),
			}, tooMany,
		},
		"keys": {several, tooMany},
		"long message": {
			map[string]string{"a": "- {" + text + ": 1}"}, `has at "a" no list with command`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeCommands(test.data)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || len(err.Error()) > 2000 {
				t.Errorf("got %.300v, want %q", err, test.want)
			}
		})
	}
	if _, err := decodeCommands(map[string]string{"a": "- &a {}\n- *a"}); err == nil {
		t.Error("a command without a name is accepted")
	}
}

// An item is not one for a line of text that begins with a dash.
func TestItems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"":                               0,
		"# a\n---\n- a\n- b":             2,
		"-\n- a\r\n-\tb\n--- c\n-d\n":    3,
		"  - command: |\n    - a\n  - b": 2,
		"[a, b]":                         0,
	} {
		if got := items(text); got != want {
			t.Errorf("%q has %d items, want %d", text, got, want)
		}
	}
}

// TestAttackManyAskForTable has many ask at once for one table, which is decoded once, whether it
// is right or wrong.
func TestAttackManyAskForTable(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]map[string]string{
		"right": {"a": "- command: a\n"}, "wrong": {"a": "[" + strings.Repeat("{},", 100_000) + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var kept tables
			var all [24]string // where what they get is in memory
			var wg sync.WaitGroup
			for i := range all {
				wg.Go(func() {
					table, err := kept.of(t.Context(), map[string]string{"a": strings.Clone(data["a"])})
					all[i] = fmt.Sprintf("%p %p", table, err)
				})
			}
			wg.Wait()
			for _, one := range all {
				if one != all[0] {
					t.Errorf("one gets %s, another %s", all[0], one)
				}
			}
		})
	}
}

// A bounded number of tables is kept: those that were used last.
func TestKeptTables(t *testing.T) {
	t.Parallel()
	var kept tables
	text := strings.Repeat("x", 900_000)
	ask := func(i int) commands {
		t.Helper()
		table, err := kept.of(t.Context(), map[string]string{
			"a": fmt.Sprintf("- command: a%d\n  stdout: %s\n", i, text),
		})
		if err != nil || len(table) != 1 {
			t.Fatal(len(table), err)
		}
		return table
	}
	first, second := ask(0), ask(1)
	for i := range 10 {
		ask(2 + i)
		if again := ask(0); &again[0] != &first[0] {
			t.Fatal("a table that is asked for is decoded again")
		}
	}
	total := 0
	for _, k := range kept.kept {
		total += k.size
	}
	if total != kept.size || total > maxKeptTables || total < maxKeptTables-1_000_000 {
		t.Errorf("%d bytes are kept, and %d counted", total, kept.size)
	}
	if again := ask(1); &again[0] == &second[0] {
		t.Error("a table that nobody asks for is kept")
	}
}

// A text that aliases repeat is in a table once.
func TestTableHasTextOnce(t *testing.T) {
	t.Parallel()
	table, err := decodeCommands(map[string]string{
		"a": "- {command: a, stdout: &a " + strings.Repeat("x", 10_000) + "}\n" +
			strings.Repeat("- {command: b, stdout: *a}\n", 100),
	})
	if err != nil || len(table) != 101 {
		t.Fatal(len(table), err)
	}
	if unsafe.StringData(table[0].Stdout) != unsafe.StringData(table[100].Stdout) ||
		table.size() > 10_000+102*commandSize {
		t.Errorf("the table has %d bytes", table.size())
	}
}

// A client that has stopped waiting gets no table.
func TestTableOfNobody(t *testing.T) {
	t.Parallel()
	var kept tables
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := kept.of(ctx, map[string]string{"a": "- command: a"}); !errors.Is(err, gone) ||
		len(kept.kept) > 0 {
		t.Errorf("got %v", err)
	}
}
