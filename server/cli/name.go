package cli

import (
	"errors"
	"path/filepath"
	"regexp"
)

// validName matches the names that a sandbox may have. They become names of contexts and folders.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return usageError{errors.New("--name: must be up to 63 letters, digits, dots, dashes and underscores, and begin with a letter or digit")}
	}
	return nil
}

var invalidInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameFor returns the name of a sandbox whose user gave it none: the name of the directory that it
// serves. That is the parent of .kinproc, and any other data directory itself.
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
