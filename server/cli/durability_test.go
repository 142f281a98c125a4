package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var killRounds = flag.Int("rounds", 5,
	"how often TestAcknowledgedWritesSurviveKill kills the program")

const (
	killWriters = 4
	// killAfter is the maximum number of acknowledged writes in a round. It is small because the
	// moment of the kill matters more than the writes before it.
	killAfter = 200
	// killsEach is the number of rounds in one directory. With more objects, rounds become slower.
	killsEach = 250
	// killDuringStart is the maximum time after which a start is killed, in every third round.
	killDuringStart = 600 * time.Millisecond
	roundLabel      = "round"
	counterName     = "counter"
)

// acknowledged records the writes that the server has acknowledged.
type acknowledged struct {
	mu      sync.Mutex
	created map[string]int // name to round
	counter int
	writes  atomic.Int64
}

// TestAcknowledgedWritesSurviveKill kills the program with SIGKILL, while it starts and while
// clients write, and checks that every acknowledged write exists when the program runs again.
// Several directories have their rounds at once.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	t.Parallel()
	for first := 0; first < *killRounds; first += killsEach {
		rounds := min(killsEach, *killRounds-first)
		t.Run(fmt.Sprintf("%d-%d", first, first+rounds-1), func(t *testing.T) {
			t.Parallel()
			surviveKills(t, rounds)
		})
	}
}

func surviveKills(t *testing.T, rounds int) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	acked := &acknowledged{created: map[string]int{}}
	began := time.Now()
	for round := range rounds {
		p := startProgram(t, dir)
		if round%3 == 2 {
			p.killAfter(rand.N(killDuringStart))
			continue
		}
		client := p.client()
		acked.check(t, client, round-2, round-1)
		acked.write(t.Context(), client, round, rand.IntN(killAfter), p.kill)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	p := startProgram(t, dir)
	acked.check(t, p.client())
	p.kill()
	t.Logf("%d rounds of %v, %d writes acknowledged", rounds,
		(time.Since(began) / time.Duration(rounds)).Round(time.Millisecond), acked.writes.Load())
	if acked.writes.Load() < int64(rounds) {
		t.Errorf("only %d writes were acknowledged", acked.writes.Load())
	}
}

// write creates objects and increments a counter in another object until enough writes are
// acknowledged, then kills the server in the middle of it.
func (a *acknowledged) write(
	ctx context.Context, client kubernetes.Interface, round, enough int, kill func(),
) {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	var writers sync.WaitGroup
	reached := make(chan struct{})
	var once sync.Once
	target := a.writes.Load() + int64(enough)
	ack := func(note func()) {
		a.mu.Lock()
		note()
		a.mu.Unlock()
		if a.writes.Add(1) >= target {
			once.Do(func() { close(reached) })
		}
	}
	labels := map[string]string{roundLabel: strconv.Itoa(round)}
	for writer := range killWriters {
		writers.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("r%d-w%d-%d", round, writer, n)
				object := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
					Data:       map[string]string{"name": name},
				}
				if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
					return
				}
				ack(func() { a.created[name] = round })
			}
		})
	}
	writers.Go(func() {
		counter, err := maps.Get(ctx, counterName, metav1.GetOptions{})
		if err != nil {
			counter, err = maps.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: counterName}, Data: map[string]string{"n": "0"},
			}, metav1.CreateOptions{})
		}
		for err == nil {
			n, _ := strconv.Atoi(counter.Data["n"])
			counter.Data = map[string]string{"n": strconv.Itoa(n + 1)}
			if counter, err = maps.Update(ctx, counter, metav1.UpdateOptions{}); err == nil {
				ack(func() { a.counter = n + 1 })
			}
		}
	})
	// Writers end with the server. If it ends early, they may never reach the target.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		writers.Wait()
	}()
	select {
	case <-reached:
	case <-ended:
	}
	kill()
	<-ended
}

// check checks that the writes acknowledged in the given rounds exist, or in all rounds if none is
// given.
func (a *acknowledged) check(t *testing.T, client kubernetes.Interface, rounds ...int) {
	t.Helper()
	options := metav1.ListOptions{}
	if len(rounds) > 0 {
		var values []string
		for _, round := range rounds {
			values = append(values, strconv.Itoa(max(round, 0)))
		}
		options.LabelSelector = fmt.Sprintf("%s in (%s)", roundLabel, strings.Join(values, ","))
	}
	list, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, object := range list.Items {
		have[object.Name] = object.Data["name"] == object.Name
	}
	for name, in := range a.created {
		if (len(rounds) == 0 || slices.Contains(rounds, in)) && !have[name] {
			t.Errorf("%s was acknowledged in round %d but is lost", name, in)
		}
	}
	if a.counter == 0 {
		return
	}
	counter, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), counterName,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// One more update may have been written although its response was lost.
	if n, err := strconv.Atoi(counter.Data["n"]); err != nil || n < a.counter {
		t.Errorf("the counter is %q, but %d was acknowledged", counter.Data["n"], a.counter)
	}
}

// program is a kinproc in a separate process.
type program struct {
	t          testing.TB
	cmd        *exec.Cmd
	output     *strings.Builder
	kubeconfig string
	ended      chan struct{}
}

// startProgram starts kinproc on a data directory without waiting for it to be ready.
func startProgram(t testing.TB, dir string, args ...string) *program {
	t.Helper()
	return launch(t, exec.Command("kinproc"), dir, args...)
}

// launch is startProgram with a command that has all but the arguments of the program.
func launch(t testing.TB, cmd *exec.Cmd, dir string, args ...string) *program {
	t.Helper()
	p := &program{
		t:          t,
		cmd:        cmd,
		output:     &strings.Builder{},
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"),
		ended:      make(chan struct{}),
	}
	cmd.Args = append(append(cmd.Args, "start", "--secure-port=0", "--data-dir="+dir,
		"--kubeconfig="+p.kubeconfig), args...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir()) // where it would be listed
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // ProcessState has the result
	}()
	t.Cleanup(p.kill)
	return p
}

// client waits until the server is ready, and returns a client.
func (p *program) client() kubernetes.Interface {
	p.t.Helper()
	client, err := kubernetes.NewForConfig(p.restConfig())
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// restConfig waits until the kubeconfig exists, which means that the server is ready, and returns
// the configuration of a client without a limit of its own.
func (p *program) restConfig() *rest.Config {
	p.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(p.kubeconfig); err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-p.ended:
			p.t.Fatalf("kinproc ended: %s", p.output)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		p.t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (p *program) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	<-p.ended
}

func (p *program) killAfter(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ended:
		p.t.Errorf("kinproc ended: %s", p.output)
	}
	p.kill()
}
