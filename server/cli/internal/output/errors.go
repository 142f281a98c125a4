package output

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

var (
	// systemCalls are those whose names the errors of package os begin with. To a user, the file is
	// missing, whatever the call that noticed.
	systemCalls = regexp.MustCompile(
		`\b(?:l?stat|fstat|fstatat|statat|openat|unlinkat|readlinkat|mkdirat) |` +
			`\bopen (\S+: (?:no such file or directory|permission denied|` +
			`is a directory|not a directory|file exists))`)
	// decoding is what the errors of k8s.io/apimachinery about a text that is no object look like.
	decoding = regexp.MustCompile(`couldn't get version/kind; json parse error: ` +
		`json: cannot unmarshal .* into Go value of type struct \{.*?" \}|` +
		`couldn't get version/kind; json parse error: json: [^;]*|` +
		`error unmarshaling JSON: while decoding JSON: json: cannot unmarshal ` +
		`(?:string|number|bool|array) into Go value of type [A-Za-z0-9.]+|` +
		`Object 'Kind' is missing in '(?:[^'\\]|\\.)*'`)
	// parsing is what the errors of package strconv look like.
	parsing = regexp.MustCompile(
		`strconv\.[A-Za-z]+: parsing ("(?:[^"\\]|\\.)*"): (?:invalid syntax|(value out of range))`)
)

// Plain returns the message of an error without the names of functions. The places that know more
// about what went wrong say it better; this is for the errors of libraries that pass them by.
func Plain(err error) string {
	message := systemCalls.ReplaceAllString(Joined(err), "$1")
	message = decoding.ReplaceAllLiteralString(message,
		"it is not an object in YAML or JSON with an apiVersion and a kind")
	return parsing.ReplaceAllStringFunc(message, func(found string) string {
		parts := parsing.FindStringSubmatch(found)
		if parts[2] != "" {
			return parts[1] + " is out of range"
		}
		return parts[1] + " is not a valid value"
	})
}

// Joined returns the message of an error. Those of joined errors are in one line.
func Joined(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// Unreadable returns why a file cannot be read, with its name and without that of a function.
func Unreadable(name string, err error) error {
	if of := new(fs.PathError); errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s cannot be read: %w; check its type and permissions", name, err)
}
