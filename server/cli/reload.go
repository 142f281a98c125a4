package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

// sourceInterval is how often a folder is searched for changed files.
const sourceInterval = 300 * time.Millisecond

// programStop is how long a program may take to stop.
const programStop = 10 * time.Second

// reloader builds a Go program and runs it, and again after each change of a file.
type reloader struct {
	streams
	dir     string   // of the Go module
	main    string   // the package of the program, such as "."
	also    []string // the extensions of the files that matter beside those of Go
	program string   // the file to build
	// start returns the command that runs the program. It is called when the one before has ended.
	start func(ctx context.Context) (*exec.Cmd, error)

	running *exec.Cmd
	ended   chan error
}

// run builds and runs the program until ctx ends.
func (r *reloader) run(ctx context.Context) {
	defer r.stop()
	look := time.NewTicker(sourceInterval)
	defer look.Stop()
	for {
		state := r.sources()
		if err := r.restart(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(r.err, "kinproc: %s\n", oneLine(err))
		}
		for r.sources() == state {
			select {
			case <-ctx.Done():
				return
			case err := <-r.ended:
				r.running, r.ended = nil, nil
				fmt.Fprintf(r.err,
					"kinproc: the program has ended (%v); change a file to start it again\n", err)
			case <-look.C:
			}
		}
		fmt.Fprintln(r.out, "a file has changed")
	}
}

// restart builds the program, and runs it instead of the one that runs. If it does not compile,
// that one goes on.
func (r *reloader) restart(ctx context.Context) error {
	began := time.Now()
	build := exec.CommandContext(ctx, "go", "build", "-o", r.program+".new", r.main)
	build.Dir, build.Stdout, build.Stderr = r.dir, r.err, r.err
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build: %w; change a file to try again", err)
	}
	fmt.Fprintf(r.out, "built in %s\n", time.Since(began).Round(10*time.Millisecond))
	r.stop()
	if err := os.Rename(r.program+".new", r.program); err != nil {
		return err
	}
	cmd, err := r.start(ctx)
	if err != nil {
		return err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, r.err, r.err
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	r.running, r.ended = cmd, ended
	return nil
}

// stop stops the program that runs, if there is one, and waits for it.
func (r *reloader) stop() {
	if r.running == nil {
		return
	}
	if r.running.Process.Signal(os.Interrupt) != nil {
		_ = r.running.Process.Kill() // Windows has no interrupts
	}
	select {
	case <-r.ended:
	case <-time.After(programStop):
		_ = r.running.Process.Kill()
		<-r.ended
	}
	r.running, r.ended = nil, nil
}

// sources describes the files that matter: their names, sizes and times.
func (r *reloader) sources() string {
	var state strings.Builder
	_ = filepath.WalkDir(r.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // it has just been removed
		}
		if entry.IsDir() && path != r.dir && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		extension := filepath.Ext(path)
		if entry.IsDir() || extension != ".go" && entry.Name() != "go.mod" &&
			!slices.Contains(r.also, extension) {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			fmt.Fprintln(&state, path, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return state.String()
}

// programFile returns the path of a program in a folder.
func programFile(dir, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// requireModule returns an error unless dir has a Go module.
func requireModule(dir, what, command string) error {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return usageError{fmt.Errorf("%s has no go.mod: name the folder of an %s, such as one that "+
			"kinproc %s init wrote", dir, what, command)}
	}
	return err
}

// whileReady starts an ephemeral control plane with a node, says how to reach it, and stops it when
// use returns.
func whileReady(
	ctx context.Context, s streams, name string, use func(srv *server.Server, kubeconfig string) error,
) error {
	// The proxies of the control plane tell of each connection that the end of a program ends.
	log.SetOutput(io.Discard)
	options := ephemeralOptions()
	options.Log = setLogging(0)
	return serve(ctx, options, func(srv *server.Server) error {
		kubeconfig := filepath.Join(srv.Dir(), kubeconfigName)
		config := clientcmdapi.NewConfig()
		entriesOf(name, srv.Dir()).add(config, srv.Kubeconfig())
		if err := pki.WriteKubeconfig(kubeconfig, config); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "a control plane is ready:\n\n  %s\n\n", setKubeconfig(kubeconfig))
		return use(srv, kubeconfig)
	})
}
