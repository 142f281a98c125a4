package examples_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// labVariable makes a test the inside of a lab.
const labVariable = "KINPROC_TEST_LAB"

// insideLab runs the test again, as a process in namespaces of its own: of processes, mounts and
// the network. There it returns true. Whatever that process starts, mounts or connects is gone when
// it ends, however it ends.
func insideLab(t *testing.T) bool {
	t.Helper()
	if os.Getenv(labVariable) != "" {
		return true
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("it takes the program ip, of the package iproute2, to connect network namespaces: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, subtests, _ := strings.Cut(flagValue("test.run"), "/")
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.timeout=0", "-cut="+flagValue("cut"),
		"-test.run=^"+t.Name()+"$/"+subtests)
	cmd.Env = append(os.Environ(), labVariable+"=1", "TMPDIR="+t.TempDir())
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	runtime.LockOSThread() // whose end is the signal
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("only root may make network namespaces: %v", err)
	}
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Errorf("inside of the namespaces: %v", err)
	}
	return false
}

// lab is a network with a bridge, at which the test has an address too.
type lab struct {
	t     *testing.T
	hosts []*host
}

// host is a machine of the lab: a network namespace with one address.
type host struct {
	lab           *lab
	name, address string
}

// The network of the lab, which nothing outside of its namespace sees.
const (
	labNetwork = "10.77.0."
	labAddress = labNetwork + "254"
)

// newLab makes the network, inside of a lab.
func newLab(t *testing.T) *lab {
	t.Helper()
	// The program ip keeps namespaces in /run.
	for _, err := range []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		unix.Mount("tmpfs", "/run", "tmpfs", 0, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l := &lab{t: t}
	l.ip("", "link set lo up", "link add bridge type bridge", "link set bridge up",
		"addr add "+labAddress+"/24 dev bridge")
	return l
}

// ip runs the program ip in the namespace of a host, or in the one of the test.
func (l *lab) ip(host string, lines ...string) {
	l.t.Helper()
	args := []string{"-batch", "-"}
	if host != "" {
		args = append([]string{"-n", host}, args...)
	}
	cmd := exec.CommandContext(l.t.Context(), "ip", args...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("ip %v %q: %v: %s", args, lines, err, out)
	}
}

// connect adds a host to the network.
func (l *lab) connect(name string) *host {
	l.t.Helper()
	h := &host{l, name, fmt.Sprintf("%s%d", labNetwork, len(l.hosts)+1)}
	l.ip("", "netns add "+name,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", name, name),
		fmt.Sprintf("link set %s master bridge up", name))
	l.ip(name, "link set lo up", "addr add "+h.address+"/24 dev eth0", "link set eth0 up")
	l.hosts = append(l.hosts, h)
	return h
}

// nowhere is an address of no network card.
const nowhere = "02:00:00:00:00:01"

// cut loses the packets that the host sends, those that are for it, or both, until mend.
// No error tells anybody: the packets go to a network card that does not exist.
func (h *host) cut(sent, received bool) {
	h.lab.t.Helper()
	if sent {
		h.lab.ip(h.name, h.neighbours("neigh replace %s dev eth0 lladdr "+nowhere+" nud permanent")...)
	}
	if received {
		to := "neigh replace " + h.address + " dev %s lladdr " + nowhere + " nud permanent"
		h.lab.ip("", fmt.Sprintf(to, "bridge"))
		h.others(func(o *host) { h.lab.ip(o.name, fmt.Sprintf(to, "eth0")) })
	}
}

// mend undoes cut. Forgotten addresses are asked for again.
func (h *host) mend() {
	h.lab.t.Helper()
	const forget = "neigh flush nud permanent dev "
	h.lab.ip(h.name, forget+"eth0")
	h.lab.ip("", forget+"bridge")
	h.others(func(o *host) { h.lab.ip(o.name, forget+"eth0") })
}

func (h *host) others(do func(o *host)) {
	for _, o := range h.lab.hosts {
		if o != h {
			do(o)
		}
	}
}

// neighbours returns a line with each address that the host can reach.
func (h *host) neighbours(format string) []string {
	lines := []string{fmt.Sprintf(format, labAddress)}
	h.others(func(o *host) { lines = append(lines, fmt.Sprintf(format, o.address)) })
	return lines
}

// become makes cmd, which runs the test binary, run at the host.
func (h *host) become(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, hostVariable+"="+h.name)
	return cmd
}

// enterHost gives this process, which then begins anew, the network and the name of a host.
func enterHost(name string) error {
	namespace, err := os.Open(filepath.Join("/run/netns", name))
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the namespaces are those of the thread
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	if err := os.Unsetenv(hostVariable); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}
