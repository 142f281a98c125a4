package cli

import "testing"

func TestPlain(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"read it: stat /a/b: no such file or directory":    "read it: /a/b: no such file or directory",
		"openat x: permission denied; lstat y: bad":        "x: permission denied; y: bad",
		`strconv.ParseInt: parsing "x\"": invalid syntax`:  `"x\"" is not a valid value`,
		`a: strconv.Atoi: parsing "9": value out of range`: `a: "9" is out of range`,
		"the status of instat is unknown":                  "the status of instat is unknown",
	} {
		if got := plain(message); got != want {
			t.Errorf("%s: %s", message, got)
		}
	}
}
