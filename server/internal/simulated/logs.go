package simulated

import (
	"context"
	"io"
	"math"
	"strconv"
	"strings"
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
)

// log is that of one run of a container: its lines once, when it begins, or again and again at a
// rate. It follows from the time, so nothing needs to be kept.
type log struct {
	lines []string
	rate  float64 // lines per second, or 0
	began time.Time
	ended time.Time // zero while it runs
	id    string    // of the container
	name  string
}

func (k *Kubelet) log(p *corev1.Pod, name string, previous bool) (*log, error) {
	s := statusOfContainer(p, name)
	p = k.Behaviors.Of(p)
	lines, err := k.text(p, name)
	if err != nil {
		return nil, err
	}
	_, kind := container(p, name)
	l := &log{lines: lines, id: s.ContainerID, name: name}
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
	return l, nil
}

// until returns how many lines there are at a time.
func (l *log) until(now time.Time) int64 {
	if !l.ended.IsZero() && l.ended.Before(now) {
		now = l.ended
	}
	switch passed := now.Sub(l.began); {
	case len(l.lines) == 0:
		return 0
	case l.rate == 0:
		return int64(len(l.lines))
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
		return int64(len(l.lines))
	default:
		return int64(math.Ceil(passed.Seconds() * l.rate))
	}
}

// bounded returns the first of the lines from one to another that are no more than maxLogBytes.
func (l *log) bounded(from, to int64) int64 {
	size := 0
	for i := to - 1; i >= from; i-- {
		if size += len(l.lines[i%int64(len(l.lines))]) + 1; size > maxLogBytes {
			return i + 1
		}
	}
	return from
}

// line returns a line. {n} and {time} stand for its number and its time.
func (l *log) line(i int64, timestamps bool) string {
	text, at := l.lines[i%int64(len(l.lines))], l.at(i).UTC()
	if strings.Contains(text, "{") {
		text = strings.NewReplacer("{n}", strconv.FormatInt(i+1, 10),
			"{time}", at.Format(time.RFC3339)).Replace(text)
	}
	if timestamps {
		text = at.Format(time.RFC3339Nano) + " " + text
	}
	return text + "\n"
}

// logReader reads a log.
type logReader struct {
	*log
	ctx        context.Context
	timestamps bool
	next, end  int64
	left       int64 // bytes, or negative for no limit
	buffer     string
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
	for r.buffer == "" {
		if r.left == 0 {
			return 0, io.EOF
		}
		if r.next >= r.end {
			if !r.await() {
				return 0, io.EOF
			}
			continue
		}
		r.buffer = r.line(r.next, r.timestamps)
		r.next++
		if r.left > 0 {
			r.buffer = r.buffer[:min(int64(len(r.buffer)), r.left)]
			r.left -= int64(len(r.buffer))
		}
	}
	n := copy(to, r.buffer)
	r.buffer = r.buffer[n:]
	return n, nil
}

// await waits for the next line. It reports whether there may be one.
func (r *logReader) await() bool {
	if r.pod == nil {
		return false
	}
	var due <-chan time.Time
	if r.rate > 0 && len(r.lines) > 0 {
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
