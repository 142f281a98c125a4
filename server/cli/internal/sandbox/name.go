package sandbox

import (
	"errors"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/kinproc/kinproc/server/cli/internal/output"
)

// DefaultDir is the data directory, in the working directory, of a sandbox for which nobody has
// named one.
const DefaultDir = ".kinproc"

// The files by which other commands find a control plane that kinproc start runs. They are in its
// folder, which is the data directory or a folder below .kinproc/ephemeral.
const (
	recordName = "running.json"
	// KubeconfigName is the kubeconfig.
	KubeconfigName = "kubeconfig"
	// lockName is the file that the process locks while it runs.
	lockName = "running.lock"
	// readyName is the file that the process locks when the control plane is ready. Unlike the
	// other lock, this one belongs to the process, so the kernel says which process that is.
	readyName = "ready.lock"
	// LogName is the file to which a process in the background logs.
	LogName       = "kinproc.log"
	ephemeralName = "ephemeral"
)

// inEphemeral reports whether a folder is one for an ephemeral control plane.
func inEphemeral(folder string) bool { return filepath.Base(filepath.Dir(folder)) == ephemeralName }

// validName matches the allowed names of a sandbox. Contexts and folders are named after the
// sandbox.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName returns an error if a sandbox cannot have a name.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return errors.New("must be at most 63 letters, digits, dots, dashes or underscores, " +
			"and begin with a letter or digit")
	}
	return nil
}

// ShownName returns a name to print, in quotes if kinproc has not given it.
func ShownName(name string) string {
	if validName.MatchString(name) {
		return name
	}
	return output.Line(strconv.Quote(name))
}

var invalidInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// NameFor returns the default name of a sandbox: the name of its directory. For the data directory
// .kinproc that is the parent directory, otherwise the data directory itself.
func NameFor(dir string) string {
	path, err := filepath.Abs(dir)
	if err != nil {
		path = dir
	}
	if filepath.Base(path) == DefaultDir {
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
