// Package examples_test drives the examples as a user does: it builds their programs and runs them,
// against control planes in the test process. It also tests kinproc with the programs that it is
// meant to work with: k8s.io/sample-apiserver, a controller-runtime manager, client-go's informers,
// kubectl, webhooks, an etcd cluster and a browser.
package examples_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/cli"
	// The programs import it. So go test knows that these tests depend on it.
	_ "github.com/kinproc/kinproc/server/extension"
)

// timeout limits every wait. It is generous, for loaded machines with the race detector.
const timeout = 60 * time.Second

// patient is an option for control planes that kubectl asks for the document of OpenAPI v2. On a
// loaded machine with the race detector, that may take more than a minute.
func patient(o *server.Options) { o.RequestTimeout = 5 * time.Minute }

// kinprocVariable makes the test binary act as kinproc.
const kinprocVariable = "EXAMPLES_TEST_KINPROC"

// programs returns the folder of the programs of the examples. The first call builds them.
var programs func() (string, error)

// hostVariable makes the test binary run at that host of a lab.
const hostVariable = "KINPROC_TEST_HOST"

func TestMain(m *testing.M) {
	if host := os.Getenv(hostVariable); host != "" {
		fmt.Fprintf(os.Stderr, "become host %s: %v\n", host, enterHost(host))
		os.Exit(1)
	}
	if os.Getenv(kinprocVariable) != "" {
		os.Exit(cli.Main(os.Args[1:]))
	}
	if os.Getenv(wardleVariable) != "" {
		fmt.Fprintln(os.Stderr, runWardle(os.Args[1:]))
		os.Exit(1)
	}
	if value := os.Getenv(memberVariable); value != "" {
		fmt.Fprintln(os.Stderr, runMember(value))
		os.Exit(1)
	}
	klog.SetLogger(logr.Discard()) // servertest prints the logs of failed tests
	dir, err := os.MkdirTemp("", "examples")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs = sync.OnceValues(func() (string, error) { return dir, build(dir) })
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// build builds the programs of all examples into a folder. It compiles what the test binary has too
// in the same way, so that the go command has it already.
func build(dir string) error {
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir}
	if race {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "./...")...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the examples: %w\n%s", err, out)
	}
	// After a change in a folder that a test reads, go test does not take the result of the test
	// from its cache. It does not see what the compiler reads.
	return filepath.WalkDir(".", func(_ string, _ fs.DirEntry, err error) error { return err })
}

// program is a program of an example, which runs in a process of its own.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout string // a file
	cancel context.CancelFunc
	ended  chan struct{}
}

// start runs a program in a folder until the test ends.
func start(t *testing.T, dir, name string, args ...string) *program {
	t.Helper()
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(built, name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, stdout, t.Output()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = timeout
	p := &program{t, cmd, stdout.Name(), cancel, make(chan struct{})}
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // stop looks at the state
	}()
	t.Cleanup(p.stop)
	return p
}

// stop interrupts the program and waits until it has ended.
func (p *program) stop() {
	p.t.Helper()
	p.cancel()
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		p.t.Errorf("%s: %s", p.cmd, p.cmd.ProcessState)
	}
}

// eventually repeats attempt until it succeeds, or until the program ends.
func (p *program) eventually(attempt func() error) {
	p.t.Helper()
	eventually(p.t, func() error {
		select {
		case <-p.ended:
			p.t.Fatalf("%s has ended", p.cmd)
		default:
		}
		return attempt()
	})
}

// registration returns the file with the manifests that register the program, which it prints.
func (p *program) registration() string {
	p.t.Helper()
	p.eventually(func() error {
		printed, err := os.ReadFile(p.stdout)
		if err == nil && !bytes.Contains(printed, []byte("APIService")) {
			err = fmt.Errorf("%s has printed %q", p.cmd, printed)
		}
		return err
	})
	return p.stdout
}

// await waits until the control plane reaches the path of a resource of the program, and kubectl
// finds it.
func (p *program) await(k *kubectl.Kubectl, path string) {
	p.t.Helper()
	p.eventually(func() error {
		_, err := k.Try("get", "--raw", path)
		return err
	})
	// The aggregator adds the group to what kubectl discovers a moment later.
	group := strings.Split(path, "/")[2]
	p.eventually(func() error {
		_, err := k.Try("get", filepath.Base(path)+"."+group, "--all-namespaces")
		return err
	})
}

// folder returns a folder with the kubeconfig of a control plane where kinproc start puts one, and
// where the programs look for it.
func folder(t *testing.T, s *server.Server) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, ".kinproc", "kubeconfig")
	if err := clientcmd.WriteToFile(*s.Kubeconfig(), file); err != nil {
		t.Fatal(err)
	}
	return dir
}

// eventually repeats attempt until it succeeds.
func eventually(t *testing.T, attempt func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(timeout)
	for {
		err := attempt()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}
