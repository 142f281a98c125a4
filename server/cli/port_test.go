package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli/internal/settings"
)

// ListenAside listens at a port of 127.0.0.1 that is not one of those that the system gives to who
// asks for any port. So nobody else gets it between the end of the listener and its use.
func ListenAside() (net.Listener, error) {
	const first, last = 10_000, 30_000
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
}

// The port of a sandbox is the one that it has had, or the default, or a free one, unless somebody
// names one.
func TestListen(t *testing.T) {
	t.Parallel()
	hold := func() (port int, free func()) {
		l, err := ListenAside()
		if err != nil {
			t.Fatal(err)
		}
		return l.Addr().(*net.TCPAddr).Port, func() { l.Close() }
	}
	busy, free := hold()
	defer free()
	unused, free := hold()
	free()
	named := []settings.Setting{{Flag: "secure-port"}}
	for name, c := range map[string]struct {
		standard, kept int
		inForce        []settings.Setting
		want           int // 0 for another one, -1 for none
	}{
		"the default is free":        {standard: unused, want: unused},
		"the default is in use":      {standard: busy, want: 0},
		"the kept one is free":       {standard: busy, kept: unused, want: unused},
		"the kept one is in use":     {standard: unused, kept: busy, want: 0},
		"a port in use was named":    {standard: busy, inForce: named, want: -1},
		"any free port was asked":    {standard: 0, kept: unused, want: -1},
		"the address cannot be used": {standard: 1 << 20, want: -1},
	} {
		o := startOptions{server: server.Options{SecurePort: c.standard, BindAddress: "127.0.0.1"}}
		o.settled.Memory.Port, o.settled.InForce = c.kept, c.inForce
		l, notice, err := o.listen()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if (l == nil) != (c.want < 0) {
			t.Errorf("%s: listens at %v", name, l)
		}
		if l == nil {
			continue
		}
		l.Close()
		got := l.Addr().(*net.TCPAddr).Port
		if got == busy || c.want > 0 && got != c.want {
			t.Errorf("%s: listens at %d", name, got)
		}
		if moved := strings.Contains(notice, "is in use; this sandbox uses "); moved !=
			(c.want == 0) {
			t.Errorf("%s: says %q", name, notice)
		}
	}
}

// A start that fails says nothing of the port that it would have taken.
func TestFailedStartSaysNothingOfPort(t *testing.T) {
	t.Parallel()
	busy, err := ListenAside()
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	dir := filepath.Join(t.TempDir(), "data")
	o := startOptions{server: server.Options{
		DataDir: dir, SecurePort: busy.Addr().(*net.TCPAddr).Port, BindAddress: "127.0.0.1",
		TLSCertFile: filepath.Join(dir, "nope"), TLSPrivateKeyFile: filepath.Join(dir, "nope"),
	}}
	var said strings.Builder
	err = o.run(t.Context(), streams{out: &said, err: &said})
	if err == nil || !strings.Contains(err.Error(), "there is no file") || said.String() != "" {
		t.Errorf("the start ended with %v, and said %q", err, said.String())
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory is there: %v", err)
	}
}
