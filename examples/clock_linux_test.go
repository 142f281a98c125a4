package examples_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// clock is the wall clock of one process.
//
// A Go program takes the time from the vDSO, code that the kernel maps into each process, and the
// kernel has no wall clocks other than its own: time namespaces have only the monotonic clocks. So
// the code is replaced in the memory of the process: it asks the kernel, and adds to the wall clock
// what follows the code. The monotonic clock, by which Go's timers run, stays as it is, as when the
// clock of a machine is set.
type clock struct {
	pid    int
	offset int64 // the address of the number of seconds
}

// shifting is the code, for amd64. The two arguments are a clock and where to put its time.
var shifting = []byte{
	0xb8, unix.SYS_CLOCK_GETTIME, 0, 0, 0, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jnz: not CLOCK_REALTIME
	0x48, 0x8b, 0x0d, 14, 0, 0, 0, // mov rcx, [rip+14]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3,                                                       // ret
	0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, // aligns
}

// holdClock takes the wall clock of a process.
func holdClock(t *testing.T, process *os.Process) *clock {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skipf("the code that takes the clock of a process is for amd64, not %s", runtime.GOARCH)
	}
	c := &clock{pid: process.Pid}
	from, to := c.vdso(t)
	image := make([]byte, to-from)
	c.memory(t, func(f *os.File) error { _, err := f.ReadAt(image, from); return err })
	parsed, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := parsed.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var at int64
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(shifting)+8) {
			at = from + int64(s.Value)
		}
	}
	if at == 0 {
		t.Skip("the vDSO of this kernel has no __vdso_clock_gettime, or too little of it")
	}
	c.offset = at + int64(len(shifting))
	c.paused(t, from, to, func() {
		c.memory(t, func(f *os.File) error {
			_, err := f.WriteAt(append(bytes.Clone(shifting), make([]byte, 8)...), at)
			return err
		})
	})
	return c
}

// set makes the clock differ from that of the machine.
func (c *clock) set(t *testing.T, offset time.Duration) {
	t.Helper()
	seconds := binary.LittleEndian.AppendUint64(nil, uint64(int64(offset/time.Second)))
	c.memory(t, func(f *os.File) error { _, err := f.WriteAt(seconds, c.offset); return err })
}

func (c *clock) path(name ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(c.pid)}, name...)...)
}

func (c *clock) memory(t *testing.T, do func(f *os.File) error) {
	t.Helper()
	f, err := os.OpenFile(c.path("mem"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := do(f); err != nil {
		t.Fatal(err)
	}
}

// vdso returns where the vDSO is.
func (c *clock) vdso(t *testing.T) (from, to int64) {
	t.Helper()
	mapped, err := os.ReadFile(c.path("maps"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mapped)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
				t.Fatal(err)
			}
			return from, to
		}
	}
	t.Skip("this kernel maps no vDSO into processes")
	return 0, 0
}

// paused calls do while the process is stopped and no thread of it is in the vDSO.
func (c *clock) paused(t *testing.T, from, to int64, do func()) {
	t.Helper()
	for {
		if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		outside := c.stoppedOutside(t, from, to)
		if outside {
			do()
		}
		if err := syscall.Kill(c.pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if outside {
			return
		}
	}
}

// stoppedOutside waits until all threads have stopped, and reports whether that is outside of a
// range of addresses.
func (c *clock) stoppedOutside(t *testing.T, from, to int64) bool {
	t.Helper()
	threads, err := os.ReadDir(c.path("task"))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		for {
			// Of a thread that runs, it says so. Otherwise, the address is the last word.
			state, err := os.ReadFile(c.path("task", thread.Name(), "syscall"))
			if err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(string(state))
			stat, err := os.ReadFile(c.path("task", thread.Name(), "stat"))
			if err != nil {
				t.Fatal(err)
			}
			_, after, _ := strings.Cut(string(stat), ") ")
			if !strings.HasPrefix(after, "T") || len(words) < 3 {
				runtime.Gosched()
				continue
			}
			at, err := strconv.ParseInt(words[len(words)-1], 0, 64)
			if err != nil {
				t.Fatal(err)
			}
			if from <= at && at < to {
				return false
			}
			break
		}
	}
	return true
}
