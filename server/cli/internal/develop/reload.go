// Package develop builds the programs that a user writes, runs them, and does so again after each
// change of a file.
package develop

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/cli/internal/output"
)

// sourceInterval is how often a folder is searched for changed files.
const sourceInterval = 300 * time.Millisecond

// programStop is how long a program may take to stop.
const programStop = 10 * time.Second

// Project is a Go module to develop, and the control plane for it.
type Project struct {
	Out, Err   io.Writer
	Dir        string // of the module
	Kubeconfig string // the file for the program, absolute
	Config     *rest.Config
}

// reloader builds a Go program and runs it, and again after each change of a file.
type reloader struct {
	Project
	main    string   // the package of the program, such as "."
	also    []string // the extensions of the files that matter beside those of Go
	program string   // the file to build
	// start returns the command that runs the program. The previous one has ended by then.
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
			fmt.Fprintf(r.Err, "kinproc: %s\n", output.Joined(err))
		}
		for r.sources() == state {
			select {
			case <-ctx.Done():
				return
			case err := <-r.ended:
				r.running, r.ended = nil, nil
				fmt.Fprintf(r.Err,
					"kinproc: the program has ended (%v); change a file to start it again\n", err)
			case <-look.C:
			}
		}
		fmt.Fprintln(r.Out, "a file has changed")
	}
}

// restart builds the program, and runs it instead of the one that runs. If it does not compile,
// that one goes on.
func (r *reloader) restart(ctx context.Context) error {
	began := time.Now()
	build := exec.CommandContext(ctx, "go", "build", "-o", r.program+".new", r.main)
	build.Dir, build.Stdout, build.Stderr = r.Dir, r.Err, r.Err
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build: %w; change a file to try again", err)
	}
	fmt.Fprintf(r.Out, "built in %s\n", time.Since(began).Round(10*time.Millisecond))
	r.stop()
	if err := os.Rename(r.program+".new", r.program); err != nil {
		return err
	}
	cmd, err := r.start(ctx)
	if err != nil {
		return err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.Dir, r.Err, r.Err
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
	_ = filepath.WalkDir(r.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // it has just been removed
		}
		if entry.IsDir() && path != r.Dir && strings.HasPrefix(entry.Name(), ".") {
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
