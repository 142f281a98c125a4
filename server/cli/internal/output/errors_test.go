package output

import (
	"errors"
	"testing"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"read it: stat /a/b: no such file or directory":    "read it: /a/b: no such file or directory",
		"openat x: permission denied; lstat y: bad":        "x: permission denied; y: bad",
		`strconv.ParseInt: parsing "x\"": invalid syntax`:  `"x\"" is not a valid value`,
		`a: strconv.Atoi: parsing "9": value out of range`: `a: "9" is out of range`,
		"the file: open /a/b: permission denied":           "the file: /a/b: permission denied",
		"open the file: it is closed":                      "open the file: it is closed",
		`f: couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value ` +
			`of type struct { A string "json:\"a,omitempty\""; Kind string "json:\"kind,omitempty\"" }; x`: "f: " +
			"it is not an object in YAML or JSON with an apiVersion and a kind; x",
		"f: Object 'Kind' is missing in ''": "f: it is not an object in YAML or JSON with an apiVersion and a kind",
		"the status of instat is unknown":   "the status of instat is unknown",
	} {
		if got := Plain(errors.New(message)); got != want {
			t.Errorf("%s: %s", message, got)
		}
	}
}
