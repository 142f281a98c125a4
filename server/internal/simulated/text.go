package simulated

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kinproc/kinproc/server/internal/plainfile"
)

// maxLogFile is how much of a file a container logs.
const maxLogFile = 1 << 20

// text is what a container logs. A reader reads a piece at a time, and holds none of it.
type text struct {
	io.ReaderAt
	size int64
}

// from returns a reader of what follows after an offset.
func (t text) from(offset int64) io.Reader {
	return io.NewSectionReader(t, offset, t.size-offset)
}

// shared is a text that all those have in common who read the same.
type shared struct{ unique.Handle[string] }

// ReadAt implements io.ReaderAt.
func (s shared) ReadAt(to []byte, at int64) (int, error) {
	return strings.NewReader(s.Value()).ReadAt(to, at)
}

// index has where the lines of a text begin, and the end of the text.
type index []int32

// indexOf returns an index, with at least one line unless the text is empty.
func indexOf(data []byte) index {
	x := make(index, 1, bytes.Count(data, []byte("\n"))+2)
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			end = len(data) - at - 1
		}
		at += end + 1
		x = append(x, int32(at))
	}
	return x
}

func (x index) lines() int64 { return int64(len(x)) - 1 }

// begin lets a reader begin with its first line.
func (r *logReader) begin(x index) {
	at := int32(0)
	if r.lines > 0 {
		at = x[r.next%r.lines]
	}
	r.in = bufio.NewReaderSize(r.text.from(int64(at)), int(min(r.text.size, maxLogLine)))
}

// text returns what a container logs, and all of it once.
func (k *Kubelet) text(p *corev1.Pod, name string) (text, []byte, error) {
	c, kind := container(p, name)
	says, ok := steer(p, logAnnotation, name, kind)
	if file, named := steer(p, logFileAnnotation, name, kind); named && !ok {
		f := logFile{k.LogDir, file}
		data, err := f.read()
		return text{f, int64(len(data))}, data, err
	}
	if b, understood := understand(c); !ok && understood && b.output != "" {
		says, ok = b.output, true
	}
	if !ok {
		says = fmt.Sprintf("kinproc simulates node %s: container %s does not run and logs nothing",
			p.Spec.NodeName, name)
	}
	return text{shared{unique.Make(says)}, int64(len(says))}, []byte(says), nil
}

// logFile is a file below the directory for them. Links that lead out of it are refused.
type logFile struct{ dir, name string }

func (l logFile) open() (*os.File, error) {
	if l.dir == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the annotation %s names the file %q: start "+
			"kinproc with --simulated-log-dir to let pods log files of a directory", logFileAnnotation,
			l.name))
	}
	dir, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, l.refused(err)
	}
	defer dir.Close()
	f, err := plainfile.OpenIn(dir, l.name)
	if err != nil {
		return nil, l.refused(err)
	}
	return f, nil
}

func (l logFile) refused(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the file %q of annotation %s cannot be read below "+
		"--simulated-log-dir: %s", l.name, logFileAnnotation, reason(err)))
}

// read returns the text of the file.
func (l logFile) read() ([]byte, error) {
	f, err := l.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLogFile))
	if err != nil {
		return nil, l.refused(err)
	}
	return data, nil
}

// ReadAt implements io.ReaderAt. The file is open only meanwhile, so that those who follow logs
// hold no files.
func (l logFile) ReadAt(to []byte, at int64) (int, error) {
	f, err := l.open()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(to, at)
}

// reason returns an error of the file system in words.
func reason(err error) string {
	if os.IsNotExist(err) {
		return "it does not exist"
	}
	if os.IsPermission(err) {
		return "permission denied"
	}
	words := strings.Split(err.Error(), ": ")
	return words[len(words)-1]
}
