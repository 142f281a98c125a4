package explore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/kinproc/kinproc/server/internal/disturb"
)

// sinceVariable is the environment variable for Test.Since.
const sinceVariable = "KINPROC_EXPLORE_SINCE"

// since returns the commit since which lines must have changed, and what has set it.
func (t *Test) since() (ref, by string) {
	if ref := os.Getenv(sinceVariable); ref != "" {
		return ref, sinceVariable
	}
	return t.Since, "Test.Since"
}

// changes are the lines of a repository that differ from those of a commit.
type changes struct {
	root  string             // of the repository
	lines map[string][]lines // by path; of a file that is not in the commit, all are
	// module is the one of the current directory, and dir is where it is.
	module, dir string
}

// lines are those from the first to the last one.
type lines struct{ first, last int }

// changesSince compares the files of the repository of the current directory with a commit.
func changesSince(ctx context.Context, ref string) (*changes, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, fmt.Errorf("%w: install git, or do not ask for what has changed since a commit", err)
	}
	root, err := git(ctx, "", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, fmt.Errorf("the test must run in a git repository: %w", err)
	}
	c := &changes{root: filepath.FromSlash(strings.TrimSpace(root)), lines: map[string][]lines{}}
	commit, err := git(ctx, c.root, "rev-parse", "--verify", "--quiet", "--end-of-options",
		ref+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("there is no commit %q here; a clone of a CI system often has the "+
			"newest commit only: fetch the branch, and name it as in origin/main: %w", ref, err)
	}
	diff, err := git(ctx, c.root, "-c", "core.quotePath=false", "diff", "--unified=0",
		"--inter-hunk-context=0", "--text", "--no-textconv", "-O"+os.DevNull, "--no-color",
		"--no-ext-diff", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/",
		strings.TrimSpace(commit), "--")
	if err != nil {
		return nil, err
	}
	if err := c.read(diff); err != nil {
		return nil, err
	}
	untracked, err := git(ctx, c.root, "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	for path := range strings.SplitSeq(untracked, "\x00") {
		c.lines[path] = []lines{{1, 1 << 30}}
	}
	return c, c.findModule()
}

// git runs git in a directory and returns its output.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	} else if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(out), nil
}

// read reads a diff without context.
func (c *changes) read(diff string) error {
	path, skip := "", 0
	s := bufio.NewScanner(strings.NewReader(diff))
	s.Buffer(nil, len(diff)+1)
	for s.Scan() {
		line := s.Text()
		switch name, isName := strings.CutPrefix(line, "+++ "); {
		case skip > 0: // a line of a hunk may look like anything
			if !strings.HasPrefix(line, `\`) {
				skip--
			}
		case isName:
			if unquoted, err := strconv.Unquote(name); err == nil {
				name = unquoted
			}
			path = strings.TrimPrefix(strings.TrimSuffix(name, "\t"), "b/")
		case strings.HasPrefix(line, "@@ "):
			fields := strings.Fields(line)
			if len(fields) < 3 {
				return fmt.Errorf("git diff: unexpected line %q", line)
			}
			_, before, err := hunk(fields[1], "-")
			first, after, err2 := hunk(fields[2], "+")
			if err := errors.Join(err, err2); err != nil {
				return fmt.Errorf("git diff: line %q: %w", line, err)
			}
			skip = before + after
			// What has lost lines has changed where they were: the lines on both sides.
			c.lines[path] = append(c.lines[path], lines{first, first + max(after-1, 1-after)})
		}
	}
	return s.Err()
}

// hunk parses a range such as "+12,3".
func hunk(text, sign string) (first, n int, err error) {
	start, length, several := strings.Cut(strings.TrimPrefix(text, sign), ",")
	if first, err = strconv.Atoi(start); err != nil || !several {
		return first, 1, err
	}
	n, err = strconv.Atoi(length)
	return first, n, err
}

// findModule finds the module of the current directory, which names the files of a binary that is
// built with -trimpath.
func (c *changes) findModule() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			c.module, c.dir = modfile.ModulePath(data), dir
			return nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil // files have no names of modules
		}
		dir = parent
	}
}

// concern reports whether a disturbance is at a line that has changed, or at one that is not known.
func (c *changes) concern(d disturb.Disturbance) bool {
	path, ok := c.path(d.Caller.File)
	if !ok {
		return true
	}
	for _, l := range c.lines[path] {
		if l.first <= d.Caller.Line && d.Caller.Line <= l.last {
			return true
		}
	}
	return false
}

// path returns the path of a file in the repository, and whether it is there.
func (c *changes) path(file string) (string, bool) {
	if inModule, ok := strings.CutPrefix(filepath.ToSlash(file), c.module+"/"); ok && c.module != "" {
		file = filepath.Join(c.dir, inModule)
	}
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", false
	}
	path, err := filepath.Rel(c.root, file)
	return filepath.ToSlash(path), err == nil && filepath.IsLocal(path)
}
