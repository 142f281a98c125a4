package simulated

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestUnderstand(t *testing.T) {
	t.Parallel()
	shell := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	for name, test := range map[string]struct {
		command []string
		want    behavior
		ok      bool
	}{
		"sleep": {
			[]string{"sleep", "1.5", "1m"}, behavior{runs: 61500 * time.Millisecond}, true,
		},
		"sleep for nothing": {[]string{"sleep", ""}, behavior{}, false},
		"exit": {
			shell("echo a; exit 3; sleep 9"), behavior{code: 3, output: "a\n"}, true,
		},
		"exit as before": {shell("false; exit"), behavior{code: 1}, true},
		"skipped":        {shell("false && sleep 9"), behavior{code: 1}, true},
		"not understood": {shell("make install"), behavior{}, false},
	} {
		got, ok := understand(&corev1.Container{Command: test.command})
		if ok != test.ok || ok && got != test.want {
			t.Errorf("%s: got %+v, %v", name, got, ok)
		}
	}
	if got, ok := understand(&corev1.Container{
		Command: shell("sleep 2e9 2e9 2e9; sleep 2e9; sleep 2e9"),
	}); !ok || !got.forever {
		t.Errorf("for centuries: got %+v, %v", got, ok)
	}
}

func TestUnquote(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`psql  -c "select 1"`: "psql -c select 1",
		`echo 'it "is"' ok`:   `echo it "is" ok`,
		" \t ":                "",
		`a "open`:             "a open",
		"pg_dump *":           "pg_dump *",
	} {
		if got := unquote(line); got != want {
			t.Errorf("%q without quotes is %q, want %q", line, got, want)
		}
	}
}
