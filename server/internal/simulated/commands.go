package simulated

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/chain/core"
)

// command is an entry of a table of commands: what one prints, and how it ends.
type command struct {
	// Command is the command with its arguments. A * at its end stands for any.
	Command string `json:"command"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Exit    uint8  `json:"exit"`
	// Delay is how long it takes.
	Delay metav1.Duration `json:"delay"`

	// write prints what is too large for a text of its own. It may be nil.
	write func(stdout io.Writer) error
}

const (
	maxCommands     = 1000
	maxCommandDelay = time.Minute
	// notFound is the exit code of a shell for a command that it does not know.
	notFound = 127
)

// commands are the tables of commands of a container.
type commands []command

// commands returns the commands of a container. It reports whether its pod says any.
func (k *Kubelet) commands(
	ctx context.Context, p *corev1.Pod, kind containerKind, container string,
) (table commands, ok bool, err error) {
	name, ok := steer(p, commandsAnnotation, container, kind)
	if !ok {
		return nil, false, nil
	}
	refused := func(format string, args ...any) error {
		return apierrors.NewBadRequest(fmt.Sprintf("ConfigMap %s with the commands of pod %s (annotation "+
			"%s) "+format, append([]any{name, p.Name, commandsAnnotation}, args...)...))
	}
	found, err := k.Client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, true, refused("does not exist")
	}
	if err != nil {
		return nil, true, err
	}
	table, err = k.tables.of(ctx, found.Data)
	if err != nil && context.Cause(ctx) == nil {
		err = refused("%s", err)
	}
	return table, true, err
}

// find returns what a command line does: as the table says, or as the command says itself.
func (t commands) find(words []string) (command, bool) {
	line := strings.Join(words, " ")
	for _, c := range t {
		prefix, open := strings.CutSuffix(c.Command, "*")
		if line == c.Command || open && strings.HasPrefix(line, prefix) {
			return c, true
		}
	}
	if len(words) == 3 && words[1] == "-c" && isShell(words[0]) {
		if c, ok := t.find([]string{unquote(words[2])}); ok {
			return c, true
		}
	}
	if len(words) == 1 { // a line of a script
		words = strings.Fields(words[0])
	}
	b, ok := understand(&corev1.Container{Command: words})
	if !ok || b.forever {
		return command{}, false
	}
	return command{
		Stdout: b.output, Exit: uint8(b.code), Delay: metav1.Duration{Duration: b.runs},
	}, true
}

// answers are what the commands of a container do: as its table says, or with the files that were
// copied into it.
type answers struct {
	table commands
	disk  disk
}

// find returns what a command line does.
func (a answers) find(words []string) (command, bool) {
	if c, ok := a.table.find(words); ok {
		return c, true
	}
	if len(words) == 1 { // a line of a script
		words = strings.Fields(words[0])
	}
	return a.disk.find(words)
}

// unquote returns a command line without the quotes around words, and with a space between words.
func unquote(line string) string {
	var out strings.Builder
	quote, space := rune(0), false
	for _, r := range strings.TrimSpace(line) {
		switch {
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
			continue
		case r == quote:
			quote = 0
			continue
		case quote == 0 && (r == ' ' || r == '\t'):
			space = true
			continue
		}
		if space {
			out.WriteByte(' ')
			space = false
		}
		out.WriteRune(r)
	}
	return out.String()
}

func isShell(word string) bool {
	return slices.Contains([]string{"sh", "bash", "ash", "zsh"}, path.Base(word))
}

// isInteractive reports whether a command is a shell that reads commands.
func isInteractive(words []string) bool {
	return len(words) > 0 && isShell(words[0]) && !slices.ContainsFunc(words[1:], func(w string) bool {
		return w != "-i" && w != "-l" && w != "--login"
	})
}

// run does what a command does.
func (c command) run(ctx context.Context, stdout, stderr io.Writer) error {
	if c.Delay.Duration > 0 {
		timer := time.NewTimer(c.Delay.Duration)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	err := print(stdout, c.Stdout)
	if c.write != nil && err == nil {
		err = c.write(stdout)
	}
	if err2 := print(stderr, c.Stderr); err == nil {
		err = err2
	}
	if err == nil && c.Exit != 0 {
		return &core.Exit{Code: int(c.Exit)}
	}
	return err
}

// piece is how much is written at once to a client, which may read slowly.
const piece = 4 << 10

// print writes a text piece by piece, because each is copied for the client.
func print(w io.Writer, text string) error {
	for text != "" {
		n := min(len(text), piece)
		if _, err := io.WriteString(w, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// Exec implements core.Kubelet.
func (k *Kubelet) Exec(
	ctx context.Context, p *corev1.Pod, name string, words []string,
) (core.Run, error) {
	p = k.Behaviors.Of(p)
	c, kind := container(p, name)
	table, ok, err := k.commands(ctx, p, kind, name)
	if err != nil {
		return nil, err
	}
	a := answers{table, disk{&k.files, p.UID, c}}
	if len(words) == 0 {
		return nil, apierrors.NewBadRequest("you must specify at least 1 command for the container")
	}
	if c, ok := a.find(words); ok {
		return func(ctx context.Context, s core.Streams) error {
			return c.run(ctx, lines(s.Stdout, s.TTY), lines(s.Stderr, s.TTY))
		}, nil
	}
	if run, ok := a.disk.extracts(words); ok {
		return run, nil
	}
	switch {
	case !ok:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s is simulated: no container runs on node "+
			"%s to connect to, and no annotation %s says what commands print", p.Name, p.Spec.NodeName,
			commandsAnnotation))
	case isInteractive(words):
		return func(ctx context.Context, s core.Streams) error { return a.shell(ctx, s, "$ ") }, nil
	}
	return func(_ context.Context, s core.Streams) error {
		_, _ = fmt.Fprintf(lines(s.Stderr, s.TTY), "%s: not found in the commands of this simulated pod\n",
			words[0])
		return &core.Exit{Code: notFound}
	}, nil
}

// Attach implements core.Kubelet. The process prints the log, and answers commands on its input.
func (k *Kubelet) Attach(ctx context.Context, p *corev1.Pod, name string) (core.Run, error) {
	behaves := k.Behaviors.Of(p)
	c, kind := container(p, name)
	table, answering, err := k.commands(ctx, behaves, kind, name)
	if err != nil {
		return nil, err
	}
	a := answers{table, disk{&k.files, p.UID, c}}
	_, text := steer(behaves, logAnnotation, name, kind)
	_, file := steer(behaves, logFileAnnotation, name, kind)
	if !answering && !text && !file {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s is simulated: no container runs on node "+
			"%s to connect to, and no annotation %s or %s says what it prints", p.Name, p.Spec.NodeName,
			logAnnotation, commandsAnnotation))
	}
	return func(ctx context.Context, s core.Streams) error {
		if s.Stdin != nil && answering {
			return a.shell(ctx, s, "")
		}
		log, err := k.Logs(ctx, p, name, &corev1.PodLogOptions{Follow: true, TailLines: new(int64)})
		if err != nil {
			return err
		}
		defer log.Close()
		_, err = io.Copy(lines(s.Stdout, s.TTY), log)
		return err
	}, nil
}

// maxLine is how long a line of input may be.
const maxLine = 4096

// shell answers commands, one a line. With a terminal, it does what a terminal in raw mode needs.
func (a answers) shell(ctx context.Context, s core.Streams, prompt string) error {
	if s.Stdin == nil {
		return nil
	}
	in := bufio.NewReader(s.Stdin)
	stdout, stderr := lines(s.Stdout, s.TTY), lines(s.Stderr, s.TTY)
	if s.TTY {
		stderr = stdout
	}
	last := 0
	for {
		if s.TTY {
			_, _ = io.WriteString(s.Stdout, prompt)
		}
		line, err := readLine(in, s)
		if err != nil {
			return exited(last)
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		c, known := a.find([]string{unquote(line)})
		if words[0] == "exit" && known {
			if len(words) > 1 {
				last = int(c.Exit)
			}
			return exited(last)
		}
		if !known {
			c = command{Stderr: words[0] + ": not found\n", Exit: notFound}
		}
		err = c.run(ctx, stdout, stderr)
		var exit *core.Exit
		switch {
		case err == nil:
			last = 0
		case errors.As(err, &exit):
			last = exit.Code
		default:
			return err
		}
	}
}

func exited(code int) error {
	if code == 0 {
		return nil
	}
	return &core.Exit{Code: code}
}

// readLine reads a line. A terminal in raw mode sends keys, which have to be shown.
func readLine(in *bufio.Reader, s core.Streams) (string, error) {
	var line []byte
	echo := func(text string) {
		if s.TTY {
			_, _ = io.WriteString(s.Stdout, text)
		}
	}
	for {
		b, err := in.ReadByte()
		switch {
		case err != nil && len(line) > 0:
			return string(line), nil
		case err != nil:
			return "", err
		case b == '\n', b == '\r' && s.TTY:
			echo("\r\n")
			return strings.TrimSpace(string(line)), nil
		case s.TTY && b == 4 && len(line) == 0: // Ctrl-D
			echo("\r\n")
			return "", io.EOF
		case s.TTY && b == 3: // Ctrl-C
			echo("^C\r\n")
			return "", nil
		case s.TTY && (b == 127 || b == 8):
			if len(line) > 0 {
				line = line[:len(line)-1]
				echo("\b \b")
			}
		case len(line) < maxLine && (b >= ' ' || !s.TTY):
			line = append(line, b)
			echo(string(b))
		}
	}
}

// lines returns a writer whose lines end as a terminal in raw mode needs it.
func lines(w io.Writer, tty bool) io.Writer {
	if !tty {
		return w
	}
	return terminal{w}
}

type terminal struct{ w io.Writer }

// Write implements io.Writer.
func (t terminal) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.w, strings.ReplaceAll(string(p), "\n", "\r\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}
