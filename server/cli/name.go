package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
)

// validName matches the allowed names of a sandbox. Contexts and folders are named after the
// sandbox.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkName(name string) error {
	if err := validateName(name); err != nil {
		return usageError{fmt.Errorf("--name: %w", err)}
	}
	return nil
}

func validateName(name string) error {
	if !validName.MatchString(name) {
		return errors.New("must be at most 63 letters, digits, dots, dashes or underscores, " +
			"and begin with a letter or digit")
	}
	return nil
}

var invalidInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameFor returns the default name of a sandbox: the name of its directory. For the data directory
// .kinproc that is the parent directory, otherwise the data directory itself.
func nameFor(dir string) string {
	path, err := filepath.Abs(dir)
	if err != nil {
		path = dir
	}
	if filepath.Base(path) == defaultDataDir {
		path = filepath.Dir(path)
	}
	name := invalidInName.ReplaceAllString(filepath.Base(path), "-")
	for name != "" && !validName.MatchString(name[:1]) {
		name = name[1:]
	}
	if name = name[:min(len(name), 63)]; name == "" {
		return "sandbox"
	}
	return name
}
