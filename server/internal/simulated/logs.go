package simulated

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// Limits of a log, which a kubelet has too.
const (
	maxLogRate  = 100 // lines per second
	minLogRate  = 0.001
	maxLogLines = 10_000
	maxLogBytes = 10 << 20
	// maxLogLine is how long a line is, at most, once its placeholders are replaced. Container
	// runtimes write as much at once. The rest of the line is left out.
	maxLogLine = 16 << 10
)

// log is that of one run of a container: its lines once, when it begins, or again and again at a
// rate. It follows from the time, so nothing needs to be kept.
type log struct {
	text  text
	lines int64   // of the text
	rate  float64 // lines per second, or 0
	began time.Time
	ended time.Time // zero while it runs
	id    string    // of the container
	name  string
}

// whole is the text of a log, for where to begin to read a log. It is needed only once.
type whole struct {
	data []byte // the text
	index
}

func (k *Kubelet) log(p *corev1.Pod, name string, previous bool) (*log, whole, error) {
	s := statusOfContainer(p, name)
	p = k.Behaviors.Of(p)
	text, data, err := k.text(p, name)
	if err != nil {
		return nil, whole{}, err
	}
	_, kind := container(p, name)
	x := indexOf(data)
	l := &log{text: text, lines: x.lines(), id: s.ContainerID, name: name}
	if text, ok := steer(p, logRateAnnotation, name, kind); ok {
		rate, err := strconv.ParseFloat(text, 64)
		if err == nil && rate > 0 {
			l.rate = max(minLogRate, min(rate, maxLogRate))
		}
	}
	terminated := s.State.Terminated
	if previous || s.State.Waiting != nil {
		terminated = s.LastTerminationState.Terminated
	}
	switch {
	case terminated != nil:
		l.began, l.ended = terminated.StartedAt.Time, terminated.FinishedAt.Time
	case s.State.Running != nil:
		l.began = s.State.Running.StartedAt.Time
	default:
		l.began = p.CreationTimestamp.Time
	}
	return l, whole{data, x}, nil
}

// until returns how many lines there are at a time.
func (l *log) until(now time.Time) int64 {
	if !l.ended.IsZero() && l.ended.Before(now) {
		now = l.ended
	}
	switch passed := now.Sub(l.began); {
	case l.lines == 0:
		return 0
	case l.rate == 0:
		return l.lines
	case passed < 0:
		return 0
	default:
		return int64(passed.Seconds()*l.rate) + 1
	}
}

// at returns when a line is logged.
func (l *log) at(line int64) time.Time {
	if l.rate == 0 {
		return l.began
	}
	return l.began.Add(time.Duration(float64(line) / l.rate * float64(time.Second)))
}

// since returns the first line that is not before a time.
func (l *log) since(t time.Time) int64 {
	switch passed := t.Sub(l.began); {
	case passed <= 0:
		return 0
	case l.rate == 0:
		return l.lines
	default:
		return int64(math.Ceil(passed.Seconds() * l.rate))
	}
}

// bounded returns the first of the lines from one to another that are no more than maxLogBytes.
func (l *log) bounded(b whole, from, to int64) int64 {
	var line []byte
	size := 0
	for i := to - 1; i >= from; i-- {
		n := i % l.lines
		line = l.expand(line[:0], bytes.TrimSuffix(b.data[b.index[n]:b.index[n+1]], []byte("\n")), i)
		if size += len(line) + 1; size > maxLogBytes {
			return i + 1
		}
	}
	return from
}

// expand appends a line of the text to another slice. {n} and {time} stand for its number and its
// time.
func (l *log) expand(to, line []byte, i int64) []byte {
	line = line[:min(len(line), maxLogLine)]
	from := len(to)
	var at []byte // when it is logged
	for len(to)-from < maxLogLine {
		brace := bytes.IndexByte(line, '{')
		if brace < 0 {
			to = append(to, line...)
			break
		}
		to = append(to, line[:brace]...)
		line = line[brace:]
		switch {
		case bytes.HasPrefix(line, []byte("{n}")):
			to, line = strconv.AppendInt(to, i+1, 10), line[len("{n}"):]
		case bytes.HasPrefix(line, []byte("{time}")):
			if at == nil {
				at = l.at(i).UTC().AppendFormat(at, time.RFC3339)
			}
			to, line = append(to, at...), line[len("{time}"):]
		default:
			to, line = append(to, '{'), line[1:]
		}
	}
	return to[:min(len(to), from+maxLogLine)]
}

// logReader reads a log. It holds a line, and as much of the text, whatever there is to log.
type logReader struct {
	*log
	ctx        context.Context
	timestamps bool
	next, end  int64
	left       int64         // bytes, or negative for no limit
	in         *bufio.Reader // reads the text from the line next on
	line       []byte
	unread     []byte          // of the line
	pod        watch.Interface // nil unless the log is followed
}

// follow lets a reader go on until the container ends.
func (k *Kubelet) follow(r *logReader, p *corev1.Pod) (err error) {
	r.pod, err = k.Client.CoreV1().Pods(p.Namespace).Watch(r.ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", p.Name).String(),
		ResourceVersion: p.ResourceVersion,
	})
	if apierrors.IsResourceExpired(err) {
		return nil // the pod has changed long ago, so the log is as it was
	}
	return err
}

// Read implements io.Reader.
func (r *logReader) Read(to []byte) (int, error) {
	for len(r.unread) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		if r.next >= r.end {
			if !r.await() {
				return 0, io.EOF
			}
			continue
		}
		if err := r.read(); err != nil {
			return 0, err
		}
		r.next++
		if r.left > 0 {
			r.unread = r.unread[:min(int64(len(r.unread)), r.left)]
			r.left -= int64(len(r.unread))
		}
	}
	n := copy(to, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// read reads the next line. After the last line comes the first one again.
func (r *logReader) read() error {
	r.line = r.line[:0]
	if r.timestamps {
		r.line = append(r.log.at(r.next).UTC().AppendFormat(r.line, time.RFC3339Nano), ' ')
	}
	text, err := r.in.ReadSlice('\n')
	if len(text) == 0 && err == io.EOF {
		r.in.Reset(r.text.from(0))
		text, err = r.in.ReadSlice('\n')
	}
	if len(text) == 0 {
		return err // a file that is empty now
	}
	r.line = append(r.expand(r.line, bytes.TrimSuffix(text, []byte("\n")), r.next), '\n')
	r.unread = r.line
	for errors.Is(err, bufio.ErrBufferFull) { // leaves the rest of the line out
		_, err = r.in.ReadSlice('\n')
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// await waits for the next line. It reports whether there may be one.
func (r *logReader) await() bool {
	if r.pod == nil {
		return false
	}
	var due <-chan time.Time
	if r.rate > 0 && r.lines > 0 {
		timer := time.NewTimer(time.Until(r.at(r.end)))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-r.ctx.Done():
		return false
	case <-due:
		r.end++
	case event, ok := <-r.pod.ResultChan():
		p, is := event.Object.(*corev1.Pod)
		if !ok || !is || event.Type == watch.Deleted {
			return false
		}
		s := statusOfContainer(p, r.name)
		if s.State.Running == nil || s.ContainerID != r.id {
			r.pod.Stop()
			r.pod = nil
			for _, t := range []*corev1.ContainerStateTerminated{
				s.State.Terminated, s.LastTerminationState.Terminated,
			} {
				if t != nil && t.ContainerID == r.id {
					r.ended = t.FinishedAt.Time
				}
			}
			r.end = max(r.end, r.until(time.Now()))
		}
	}
	return true
}

// Close implements io.Closer.
func (r *logReader) Close() error {
	if r.pod != nil {
		r.pod.Stop()
	}
	return nil
}
