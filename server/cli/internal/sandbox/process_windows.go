package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/windows"

	"github.com/kinproc/kinproc/server/cli/internal/origin"
	"github.com/kinproc/kinproc/server/cli/internal/private"
)

// Terminate kills a process, because Windows has no signal that asks a process to end. Acknowledged
// writes are on the disk already.
func Terminate(p *os.Process) error { return p.Kill() }

type noLock struct{}

func (noLock) Close() error { return nil }

// lockReady does nothing: Windows does not tell which process has a lock.
func lockReady(string) (io.Closer, error) { return noLock{}, nil }

// readyProcess returns 0: it is not known.
func readyProcess(*private.Dir) (pid int, err error) { return 0, nil }

// findProcess returns the process of a record. The record must have a MAC, and the process must be
// older than the control plane; otherwise it only has the number of the process that served it.
func findProcess(dir *private.Dir, r *Record) (*os.Process, error) {
	if r.PID <= 0 {
		return nil, fmt.Errorf("process %d cannot be", r.PID)
	}
	if err := origin.CheckKey(); err != nil {
		return nil, fmt.Errorf("process %d was not stopped: cannot tell who wrote %s in %s: %w; end the "+
			"control plane with Ctrl-C", r.PID, recordName, dir.Path, err)
	}
	p, err := os.FindProcess(r.PID) // a handle, so that nothing else gets the number
	if err != nil {
		return nil, err
	}
	created, err := creation(r.PID)
	if err == nil && created.After(r.Started) {
		err = fmt.Errorf("process %d was not stopped: it is younger than the control plane in %s; end "+
			"the control plane with Ctrl-C, or in the task manager", r.PID, dir.Path)
	}
	if err != nil {
		return nil, errors.Join(err, p.Release())
	}
	return p, nil
}

// creation returns when a process was created.
func creation(pid int) (time.Time, error) {
	handle, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return time.Time{}, os.NewSyscallError("OpenProcess", err)
	}
	defer windows.CloseHandle(handle)
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(handle, &created, &exited, &kernel, &user); err != nil {
		return time.Time{}, os.NewSyscallError("GetProcessTimes", err)
	}
	return time.Unix(0, created.Nanoseconds()), nil
}
