package simulated

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var logBegan = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// logging returns a pod that has run for a while, with annotations.
func logging(passed time.Duration, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Annotations = map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations["kinproc.dev/"+annotations[i]] = annotations[i+1]
	}
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			StartedAt:  metav1.NewTime(logBegan),
			FinishedAt: metav1.NewTime(logBegan.Add(passed)),
		}},
	}}
	return p
}

// logOf returns the log of a pod.
func logOf(t *testing.T, k *Kubelet, p *corev1.Pod, o corev1.PodLogOptions) string {
	t.Helper()
	r, err := k.Logs(t.Context(), p, "c", &o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestLogLines compares logs, from an annotation and from a file, with those of all lines.
func TestLogLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLogLine)
	dir := t.TempDir()
	for i, text := range []string{
		"", "\n", "a", "a\n", "a\n\n", "\n\na", "one {n}\ntwo {time}\nthree {n} {m} {\n", "{n",
		long + "\nb", "a\n" + long + "y\nb", "{" + long + "}", long + "{time}\n{time}" + long,
	} {
		file := strconv.Itoa(i)
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var all []string
		if text != "" {
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			for n := range 8 {
				at := logBegan.Add(time.Duration(n) * time.Second)
				line := strings.NewReplacer("{n}", strconv.Itoa(n+1), "{time}",
					at.Format(time.RFC3339)).Replace(lines[n%len(lines)])
				all = append(all, line[:min(len(line), maxLogLine)]+"\n")
			}
		}
		for tail := range int64(len(all) + 1) {
			want := strings.Join(all[int64(len(all))-tail:], "")
			o := corev1.PodLogOptions{TailLines: ptr.To(tail)}
			for _, source := range [][]string{{"log", text}, {"log-file", file}} {
				p := logging(7500*time.Millisecond, append(source, "log-rate", "1")...)
				if got := logOf(t, &Kubelet{LogDir: dir}, p, o); got != want {
					t.Errorf("the last %d lines of %s %.20q: %d bytes, %.40q, want %d, %.40q", tail, source[0],
						text, len(got), got, len(want), want)
				}
			}
		}
	}
	p := logging(3*time.Second, "log", "{n}: "+long, "log-rate", "1")
	got := logOf(t, &Kubelet{}, p, corev1.PodLogOptions{Timestamps: true, TailLines: ptr.To[int64](1)})
	if want := "2026-03-04T05:06:10Z 4: x"; !strings.HasPrefix(got, want) ||
		len(got) != len("2026-03-04T05:06:10Z \n")+maxLogLine-len("{}") {
		t.Errorf("with a timestamp: %d bytes, %.40q", len(got), got)
	}
}

// The last lines of a log are no more than it may return, however long they become.
func TestAttackLongLog(t *testing.T) {
	t.Parallel()
	for text, most := range map[string]int{
		strings.Repeat("{time}", 43_000):   maxLogBytes,
		strings.Repeat("{n}", 80_000):      maxLogBytes,
		strings.Repeat("{", 250_000):       maxLogBytes,
		strings.Repeat("\n", 250_000):      maxLogLines,
		strings.Repeat("{time}\n", 35_000): 21 * maxLogLines,
	} {
		p := logging(time.Hour, "log", text, "log-rate", "100")
		got := logOf(t, &Kubelet{}, p, corev1.PodLogOptions{})
		if len(got) > most || len(got) < most-2*maxLogLine {
			t.Errorf("%.10q…: %d bytes, want about %d", text, len(got), most)
		}
		for line := range strings.Lines(got) {
			if len(line) > maxLogLine+1 {
				t.Fatalf("%.10q…: a line has %d bytes", text, len(line))
			}
		}
	}
}

// What a reader of a log holds does not grow with the text, and a text is held once.
func TestAttackManyReadersOfLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := strings.Repeat("{time}", 40_000)
	for i := range 3 {
		text := fmt.Sprint(i) + strings.Repeat(strings.Repeat("{time}", 1000)+"\n", 150)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := &Kubelet{LogDir: dir}
	var texts []text
	for i := range 6 {
		source := []string{"log", line}
		if i%2 == 0 {
			source = []string{"log-file", fmt.Sprint(i / 2)}
		}
		r, err := k.Logs(context.Background(), logging(time.Hour, append(source, "log-rate", "100")...),
			"c", &corev1.PodLogOptions{Timestamps: true})
		if err != nil {
			t.Fatal(err)
		}
		reader := r.(*logReader)
		if _, err := io.CopyN(io.Discard, r, 1<<18); err != nil {
			t.Fatal(err)
		}
		if held := reader.in.Size() + cap(reader.line); held > 4*maxLogLine {
			t.Errorf("a reader of %s holds %d bytes", source[0], held)
		}
		if i%2 == 1 {
			texts = append(texts, reader.text)
		} else if _, is := reader.text.ReaderAt.(logFile); !is {
			t.Errorf("a reader of a file holds %T", reader.text.ReaderAt)
		}
	}
	for _, other := range texts {
		if other != texts[0] {
			t.Error("readers of one text hold it more than once")
		}
	}
}
