package cli

import (
	"errors"
	"os"
	"syscall"
)

// detachedProcess returns attributes for a process without a console.
func detachedProcess() *syscall.SysProcAttr {
	const detachedProcess, newProcessGroup = 0x8, 0x200
	return &syscall.SysProcAttr{CreationFlags: detachedProcess | newProcessGroup}
}

// logTo redirects this process's standard output and standard error to a file that begins with a
// line. Who waits for the end of the output finds that line in the file.
func logTo(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line); err != nil {
		return errors.Join(err, f.Close())
	}
	os.Stdout.Close()
	os.Stderr.Close()
	os.Stdout, os.Stderr = f, f
	return nil
}
