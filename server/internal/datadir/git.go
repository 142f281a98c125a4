package datadir

import (
	"os"
	"path/filepath"
)

// IgnoreFile is the file by which [KeepOutOfGit] keeps a directory out of git.
const IgnoreFile = ".gitignore"

// KeepOutOfGit makes git ignore a directory with all that is in it: keys must not be committed. A
// file of the user's stays as it is.
func KeepOutOfGit(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, IgnoreFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if os.IsExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteString("# Keys and data of a kinproc sandbox.\n*\n"); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
