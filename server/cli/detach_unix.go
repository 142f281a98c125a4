//go:build unix

package cli

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// detachedProcess returns attributes for a process that gets no signals from the terminal.
func detachedProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// logTo redirects this process's standard output and standard error to a file that begins with a
// line. Who waits for the end of the output finds that line in the file.
func logTo(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(line); err != nil {
		return err
	}
	for _, stream := range []int{1, 2} {
		if err := unix.Dup2(int(f.Fd()), stream); err != nil {
			return os.NewSyscallError("dup2", err)
		}
	}
	return nil
}
