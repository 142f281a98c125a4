package program

import (
	"errors"
	"net"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Two networks have the same ports, which nobody else has.
func TestNetworksHaveTheirOwnPorts(t *testing.T) {
	t.Parallel()
	var address string
	for range 2 {
		n, err := NewNetwork()
		if errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		err = n.do(func() error {
			l, err := net.Listen("tcp", "127.0.0.1:10250")
			if err == nil {
				t.Cleanup(func() { l.Close() })
				address = l.Addr().String()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", "cat /proc/net/dev | tail -n +3 | cut -d: -f1")
		var out []byte
		err = n.do(func() (err error) { out, err = cmd.Output(); return err })
		if err != nil || string(out) != "    lo\n" {
			t.Errorf("interfaces of a process in the network: %q, %v; want lo alone", out, err)
		}
	}
	closed, err := NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := closed.do(func() error { return nil }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed network: %v, want %v", err, net.ErrClosed)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Errorf("%s of a network can be reached from outside", address)
	}
}
