package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// atMostName is like cobra.MaximumNArgs(1), but returns a usageError.
func atMostName(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError{fmt.Errorf("%s takes the name of one sandbox, but was given %q",
			cmd.CommandPath(), args)}
	}
	return nil
}

// take uses an argument as the name of the sandbox.
func (f *sandboxFlags) take(args []string) error {
	if len(args) == 0 {
		return nil
	}
	if f.name != "" && f.name != args[0] {
		return usageError{fmt.Errorf("the argument %q and --name=%s name two sandboxes", args[0], f.name)}
	}
	f.name = args[0]
	return nil
}

// pickRunning returns the running sandbox that is meant: of this directory or, if it has none of
// that name, of the user.
func (f *sandboxFlags) pickRunning() (*sandbox, error) {
	found, err := f.find()
	if err != nil && (f.name == "" || f.dataDir != "") {
		return nil, err // otherwise there may be one of that name elsewhere
	}
	i := slices.IndexFunc(found, func(s *sandbox) bool {
		return s.findRecord() && (f.name == "" || f.name == s.record.Name)
	})
	switch {
	case i >= 0:
		return found[i], nil
	case f.name == "" && found[0].unknown:
		return nil, found[0].errUnknown()
	case f.name == "":
		return nil, fmt.Errorf("the sandbox in %s is not running", found[0].folder)
	case f.dataDir != "":
		return nil, fmt.Errorf("no sandbox %q is running in %s; see kinproc list", f.name, f.dataDir)
	}
	l, err := pickListed(f.name, func(l listed) bool { return l.record != nil })
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, fmt.Errorf("no sandbox %q is running here or elsewhere; see kinproc list", f.name)
	}
	return l.sandbox(), nil
}

// sandbox returns what is needed to stop a running sandbox.
func (l listed) sandbox() *sandbox {
	return &sandbox{folder: l.Folder, record: l.record, unknown: l.unknown}
}

// pickListed returns the user's sandbox of a name for which a condition holds, or nil if there is
// none. It is an error if there are several.
func pickListed(name string, condition func(listed) bool) (*listed, error) {
	all, err := sandboxesOfUser()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(l listed) bool {
		return l.Name != name || l.wrong != nil || !condition(l)
	})
	switch len(all) {
	case 0:
		return nil, nil
	case 1:
		return &all[0], nil
	}
	var folders []string
	for _, l := range all {
		folders = append(folders, l.Folder)
	}
	return nil, fmt.Errorf("there are %d sandboxes %q, in %s; name one with --data-dir", len(all),
		name, strings.Join(folders, " and "))
}

// completeSandboxes completes the name of a sandbox.
func completeSandboxes(_ *cobra.Command, args []string, _ string) (
	[]string, cobra.ShellCompDirective,
) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := sandboxesOfUser()
	var names []string
	for _, l := range all {
		if validName.MatchString(l.Name) {
			names = append(names, l.Name+"\t"+oneLineOf(l.Folder))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// pickKept returns the folder and the name of the sandbox that is meant, whether it is running or
// not: the one of the working directory, or the user's of that name.
func (f *sandboxFlags) pickKept() (*listed, error) {
	dir := f.dataDir
	if dir == "" && f.name == "" {
		dir = defaultDataDir
	}
	if dir == "" {
		l, err := pickListed(f.name, func(listed) bool { return true })
		if err == nil && l == nil {
			err = fmt.Errorf("there is no sandbox %q; see kinproc list", f.name)
		}
		return l, err
	}
	private, err := openPrivate(dir, os.Geteuid())
	if err == nil {
		defer private.close()
		if !slices.ContainsFunc([]string{lockName, originName, "pki", "etcd"}, func(name string) bool {
			_, err := private.root.Lstat(name)
			return err == nil
		}) {
			err = os.ErrNotExist
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no sandbox in %s; kinproc list shows all", dir)
	}
	if err != nil {
		return nil, err
	}
	s := &sandbox{folder: dir}
	if err := s.readRecord(private, "."); err != nil {
		return nil, err
	}
	l := &listed{record: s.record, unknown: s.unknown}
	if l.Folder, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	l.Name = nameFor(dir)
	if s.record != nil {
		l.Name = s.record.Name
	} else if m, err := readMemory(dir, false); err == nil && len(m.Flags["name"]) > 0 {
		l.Name = m.Flags["name"][len(m.Flags["name"])-1]
	}
	if f.name != "" && f.name != l.Name {
		return nil, fmt.Errorf("the sandbox in %s is %q, not %q", dir, l.Name, f.name)
	}
	return l, nil
}
