package nearest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/server/internal/nearest"
)

func TestTo(t *testing.T) {
	t.Parallel()
	names := []string{
		"start", "status", "stop", "simulate-nodes", "simulated-node-capacity", "name",
		"ExecProbeTimeout", "UnauthenticatedHTTP2", "WatchListOpening", "a",
	}
	for word, want := range map[string][]string{
		"strat":                   {"start"},
		"STATUS":                  {"status"},
		"simulate-node":           {"simulate-nodes"},
		"sto":                     {"stop"},
		"nodes":                   {"simulate-nodes"},
		"capacity":                {"simulated-node-capacity"},
		"x":                       nil,
		"":                        nil,
		"kubernetes":              nil,
		"probe":                   {"ExecProbeTimeout"},
		"ExecProbeTimout":         {"ExecProbeTimeout"},
		"Nope":                    nil,
		"list":                    {"WatchListOpening"},
		"topen":                   nil, // in the middle of a word
		"foo":                     nil,
		"nodelifecycle":           nil,
		strings.Repeat("a", 1000): nil,
	} {
		if got := nearest.To(word, names); !slices.Equal(got, want) {
			t.Errorf("%.20q: %q, want %q", word, got, want)
		}
	}
	if got := nearest.Ask("stat", []string{"stag", "star", "stop", "name"}); got !=
		"did you mean stag or star?" {
		t.Error(got)
	}
}
