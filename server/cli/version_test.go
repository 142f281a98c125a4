package cli

import (
	"runtime/debug"
	"testing"
)

func TestCommit(t *testing.T) {
	t.Parallel()
	revision := debug.BuildSetting{
		Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567",
	}
	date := debug.BuildSetting{Key: "vcs.time", Value: "2026-11-20T10:00:00Z"}
	for _, test := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{{Key: "GOOS", Value: "linux"}}, ""},
		{
			[]debug.BuildSetting{revision, date, {Key: "vcs.modified", Value: "false"}},
			" (commit 0123456789ab, 2026-11-20T10:00:00Z)",
		},
		{
			[]debug.BuildSetting{revision, date, {Key: "vcs.modified", Value: "true"}},
			" (commit 0123456789ab, 2026-11-20T10:00:00Z, modified)",
		},
	} {
		if got := commit(test.settings); got != test.want {
			t.Errorf("commit(%v) = %q, want %q", test.settings, got, test.want)
		}
	}
}
