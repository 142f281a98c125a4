package cli

import (
	"os"
	"syscall"
)

// detachedProcess starts a process without a console.
func detachedProcess() *syscall.SysProcAttr {
	const detachedProcess, newProcessGroup = 0x8, 0x200
	return &syscall.SysProcAttr{CreationFlags: detachedProcess | newProcessGroup}
}

// terminate ends a process. Windows has no signal that asks for it; acknowledged writes are on the
// disk.
func terminate(p *os.Process) error { return p.Kill() }

// logTo makes a file this process's standard output and standard error.
func logTo(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	os.Stdout.Close()
	os.Stderr.Close()
	os.Stdout, os.Stderr = f, f
	return nil
}
