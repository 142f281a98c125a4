//go:build unix

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/kinproc/kinproc/server/cli/internal/private"
)

// Terminate asks a process to end.
func Terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// lockReady creates and locks a file for this process. The lock is one of POSIX: the kernel tells
// which process has it, and takes it away when the process closes the file, however often it has
// opened it. So no other code of the process may open it.
func lockReady(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), f.Close())
	}
	return f, nil
}

// readyProcess returns the ID of the process that has announced its control plane in a directory,
// or 0 if there is none. The process itself must not call it, see lockReady.
func readyProcess(dir *private.Dir) (pid int, err error) {
	f, err := dir.Open(readyName)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	if lock.Type == syscall.F_UNLCK || lock.Pid <= 0 { // it may be on another machine
		return 0, nil
	}
	return int(lock.Pid), nil
}

// findProcess returns the process of a record if the kernel says that it is the one that serves the
// directory.
func findProcess(dir *private.Dir, r *Record) (*os.Process, error) {
	// On Linux, this is a handle of the process that has the ID now, so nothing can be mistaken for
	// it after the lock has been looked at.
	p, err := os.FindProcess(r.PID)
	if err != nil {
		return nil, err
	}
	holder, err := readyProcess(dir)
	if err == nil && (holder != r.PID || r.PID <= 0) {
		whose := "no process has"
		if holder > 0 {
			whose = fmt.Sprintf("process %d has", holder)
		}
		err = fmt.Errorf("process %d was not stopped: %s the lock of %s in %s; end the control plane "+
			"there with Ctrl-C or kill", r.PID, whose, readyName, dir.Path)
	}
	if err != nil {
		return nil, errors.Join(err, p.Release())
	}
	return p, nil
}
