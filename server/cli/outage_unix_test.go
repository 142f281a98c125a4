//go:build unix

package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// failureLimit is how long the program may take to end after its storage fails. It finds a program
// that hangs; five seconds are for the stop alone, when etcd's mutexes are locked.
const failureLimit = 30 * time.Second * slowdown

// fails waits until the program has ended because of a failure, and looks for the reason in its
// output.
func (p *program) fails(reason string) {
	p.t.Helper()
	limit := time.NewTimer(failureLimit)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.t.Fatalf("it still runs %s after its storage failed", failureLimit)
	}
	printed := progress.ReplaceAllString(p.output.String(), "") // of a slow start
	_, line, _ := strings.Cut(printed, "\nkinproc: ")
	if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(line, reason) ||
		strings.Count(line, "\n") != 1 {
		p.t.Errorf("it ended with code %d, want 1, and printed %s\nwant one last line that contains %q",
			code, printed, reason)
	}
}

// load writes config maps of the given size until a write fails, while others read and watch, and
// returns the names of the acknowledged ones. After each write it calls written with the number of
// config maps so far.
func load(
	ctx context.Context, t *testing.T, client kubernetes.Interface, size int, written func(n int),
) (acked []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	changes, err := maps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for range changes.ResultChan() {
		}
	}()
	var reads []<-chan error
	for range 4 {
		reads = append(reads, readUntilError(ctx, client))
	}
	for {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", len(acked))},
			Data:       map[string]string{"text": strings.Repeat("x", size)},
		}
		if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Logf("after %d: %v", len(acked), err)
			break
		}
		acked = append(acked, object.Name)
		written(len(acked))
	}
	cancel()
	for _, failed := range reads {
		<-failed
	}
	<-read
	return acked
}

// readUntilError gets a namespace repeatedly until that fails.
func readUntilError(ctx context.Context, client kubernetes.Interface) <-chan error {
	failed := make(chan error, 1)
	go func() {
		for {
			if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault,
				metav1.GetOptions{}); err != nil {
				failed <- err
				return
			}
		}
	}()
	return failed
}

// has checks that config maps exist.
func (p *program) has(names []string) {
	p.t.Helper()
	list, err := p.client().CoreV1().ConfigMaps(metav1.NamespaceDefault).List(p.t.Context(),
		metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	there := map[string]bool{}
	for _, object := range list.Items {
		there[object.Name] = true
	}
	for _, name := range names {
		if !there[name] {
			p.t.Errorf("%s was acknowledged but is lost", name)
		}
	}
}

// removeInUse removes a directory in which the program may make a file meanwhile.
func removeInUse(dir string) error {
	err := os.RemoveAll(dir)
	for errors.Is(err, syscall.ENOTEMPTY) {
		err = os.RemoveAll(dir)
	}
	return err
}

// TestEndsWhenItsDirectoryGoes removes, moves or replaces the data directory while the program
// runs.
func TestEndsWhenItsDirectoryGoes(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(from, to string) error{
		"removed": func(from, _ string) error { return removeInUse(from) },
		"moved":   os.Rename,
		"replaced": func(from, to string) error {
			return errors.Join(os.Rename(from, to), os.CopyFS(from, os.DirFS(to)),
				os.WriteFile(filepath.Join(from, "running.json"), []byte("of another"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, moved := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "moved")
			p := startProgram(t, dir)
			acked := load(t.Context(), t, p.client(), 100, func(n int) {
				if n == 10 {
					if err := away(dir, moved); err != nil {
						t.Error(err)
					}
				}
			})
			p.fails("data directory was removed or moved")
			if name != "removed" {
				again := startProgram(t, moved)
				again.has(acked)
				again.kill()
			}
			if name == "replaced" { // by the directory of another process
				if _, err := os.Stat(filepath.Join(dir, "running.json")); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
