package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kinproc/kinproc/server/cli"
	"github.com/kinproc/kinproc/server/cli/internal/standin"
)

// TestMain makes the test binary act as the program, for scripts and for tests that need it in a
// separate process.
func TestMain(m *testing.M) {
	if standin.Name(os.Args[0]) != "" {
		os.Exit(cli.Main(os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){
		"kinproc": func() { os.Exit(cli.Main(os.Args[1:])) },
		"copier":  copier,
	})
}

// scriptCommands are the script commands besides those of testscript.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"await":        await,
	"browse":       browse,
	"busyport":     busyPort,
	"certificates": certificates,
	"damage":       damage,
	"etcd":         externalEtcd,
	"eventually":   eventually,
	"extension":    extension,
	"freeport":     freePort,
	"interrupt":    interrupt,
	"prints":       prints,
	"quiet":        quiet,
	"refuses":      refuses,
	"request":      request,
	"serverof":     serverOf,
	"temporary":    temporary,
}

// TestScripts runs testdata/script. It has a file for everything that a user can observe, and the
// first line of each file says what.
func TestScripts(t *testing.T) {
	t.Parallel()
	// Under nohup this process ignores SIGHUP, and so would the programs that it starts.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	goEnv := goEnvironment(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		Cmds:                scriptCommands,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: false,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home")) // kubectl keeps caches there
			env.Vars = append(env.Vars, goEnv...)
			env.Defer(func() { killDetached(env.WorkDir) })
			// by default the race detector waits for a second before a process exits
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			return nil
		},
	})
}

// goEnvironment returns the environment of scripts that run the go command: the caches are those of
// the user, and the modules that they write may be completed.
func goEnvironment(t *testing.T) []string {
	t.Helper()
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.Fields(string(caches))
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		// The linker takes half as long again for what a debugger needs.
		"GOFLAGS=-mod=mod -ldflags=-w", "GOWORK=off",
		"GOCACHE=" + paths[0], "GOMODCACHE=" + paths[1], "REPOSITORY=" + repository,
	}
}

// killDetached kills the background processes that a failed script has left.
func killDetached(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var written struct{ Running struct{ PID int } }
		if err != nil || d.Name() != "running.json" {
			return nil
		}
		if data, err := os.ReadFile(path); err != nil ||
			json.Unmarshal(data, &written) != nil || written.Running.PID <= 0 {
			return nil
		}
		if p, err := os.FindProcess(written.Running.PID); err == nil {
			_ = p.Kill()
		}
		return nil
	})
}

// patience is how long a script waits for a condition. It is more than a loaded machine needs to
// compile and link an operator.
const patience = 10 * time.Minute

// until waits for a condition. If it gives up, it reports the last state.
func until(ts *testscript.TestScript, condition func() (ok bool, state string)) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		ok, state := condition()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("gave up: %s", state)
		}
	}
}

// await FILE [TEXT] waits until a file exists and contains a text. The kubeconfig exists once the
// server is ready.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: await file [text]")
	}
	text := ""
	if len(args) == 2 {
		text = args[1]
	}
	until(ts, func() (bool, string) {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(string(data), text), args[0] + " holds " + string(data)
	})
}

// slowStart is what a start says that takes long, as it may on a busy machine.
var slowStart = regexp.MustCompile(`(?m)^kinproc: still starting after \d+s, in the phase ".+"\n`)

// quiet checks that the last command has said nothing on its standard error. A start may have said
// that it takes long.
func quiet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: quiet")
	}
	if said := slowStart.ReplaceAllString(ts.ReadFile("stderr"), ""); said != "" {
		ts.Fatalf("unexpected standard error: %s", said)
	}
}

// temporary COUNT waits until the directory for temporary files has that many entries.
func temporary(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: temporary count")
	}
	until(ts, func() (bool, string) {
		entries, err := os.ReadDir(ts.Getenv("TMPDIR"))
		ts.Check(err)
		return strconv.Itoa(len(entries)) == args[0], fmt.Sprintf("there are %v", entries)
	})
}

// eventually ARGS... runs kinproc until it succeeds, for conditions that take a moment. With !, it
// runs kinproc until it fails.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: [!] eventually arguments...")
	}
	until(ts, func() (bool, string) {
		err := ts.Exec("kinproc", args...)
		return (err == nil) != neg, "kinproc " + strings.Join(args, " ") + ": " + ts.ReadFile("stderr")
	})
}

// prints PATTERN ARGS... runs kinproc until it succeeds and its output matches.
func prints(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: prints pattern arguments...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	until(ts, func() (bool, string) {
		err := ts.Exec("kinproc", args[1:]...)
		return err == nil && pattern.MatchString(ts.ReadFile("stdout")),
			"kinproc " + strings.Join(args[1:], " ") + ": " + ts.ReadFile("stdout") + ts.ReadFile("stderr")
	})
}

// refusalLimit is how long a refusal may take. For an etcd that does not answer, the program waits
// for four seconds. It is less than a start takes that hangs.
const refusalLimit = 30 * time.Second * slowdown

var progress = regexp.MustCompile(`(?m)^kinproc: still starting after .*\n`)

// refuses CODE ARGS... runs kinproc, which must exit with the code and print one line to standard
// error.
func refuses(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refuses exitcode arguments...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	began := time.Now()
	err = ts.Exec("kinproc", args[1:]...)
	took := time.Since(began)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != want {
		ts.Fatalf("ended with %v, want exit code %d", err, want)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("printed %q to standard output", out)
	}
	// on a slow machine, a start may say that it takes long
	if line := progress.ReplaceAllString(ts.ReadFile("stderr"), ""); !strings.HasPrefix(line, "kinproc: ") ||
		strings.Count(line, "\n") != 1 {
		ts.Fatalf("printed %q to standard error, want one line from kinproc", line)
	}
	ts.Logf("refused after %s", took)
	if took > refusalLimit {
		ts.Fatalf("took %s", took)
	}
}

// stopLimit is how long the program may take to end after Ctrl-C. It ends within milliseconds; the
// limit finds a stop that hangs.
const stopLimit = 10 * time.Second * slowdown

// interrupt [terminate|twice|hangup] interrupts the background processes. Without an argument it
// sends SIGINT, as Ctrl-C does, and with twice it sends it two times. With terminate it sends
// SIGTERM two times, with hangup SIGHUP. It waits until the processes have ended, which must not
// take long. Use wait to check their results.
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	how := strings.Join(args, " ")
	signal := os.Signal(os.Interrupt)
	switch {
	case neg || !slices.Contains([]string{"", "terminate", "twice", "hangup"}, how):
		ts.Fatalf("usage: interrupt [terminate|twice|hangup]")
	case how == "terminate":
		signal = syscall.SIGTERM
	case how == "hangup":
		signal = syscall.SIGHUP
	}
	began := time.Now()
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(signal))
		if how == "" {
			continue
		}
		// The first signal may have ended it already.
		if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			ts.Fatalf("%v", err)
		}
	}
	for _, cmd := range ts.BackgroundCmds() {
		until(ts, func() (bool, string) {
			return errors.Is(cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone), "it is still running"
		})
	}
	took := time.Since(began)
	ts.Logf("ended after %s", took)
	if took > stopLimit {
		ts.Fatalf("took %s to end", took)
	}
}

// busyport sets $PORT to a port of 127.0.0.1 that is in use until the script ends.
func busyPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: busyport")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Setenv("PORT", port)
}

// freeport NAME... sets environment variables to ports of 127.0.0.1 that are not in use, and that
// no other test gets by asking for any port.
func freePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: freeport name...")
	}
	for _, name := range args {
		l, err := cli.ListenAside()
		ts.Check(err)
		defer l.Close() // at the end, so that the ports differ
		_, port, err := net.SplitHostPort(l.Addr().String())
		ts.Check(err)
		ts.Setenv(name, port)
	}
}

// damage FILE overwrites the beginning of a file.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: damage file")
	}
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.Write(bytes.Repeat([]byte("garbage "), 2048))
	ts.Check(errors.Join(err, f.Close()))
}
