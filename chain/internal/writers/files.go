package writers

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/kinproc/kinproc/chain/history"
)

// The files of a directory. Entries are appended to the current one. When that is full, it becomes
// the older one, and the previous older one is removed.
const (
	currentName = "current"
	olderName   = "older"
)

// MaxFileBytes is how large each of the two files grows. A revision takes about 20 bytes if there
// are many in a second, and 200 otherwise.
const MaxFileBytes = 4 << 20

// flushAfter is how long a revision may wait for others before it is written to the file. A process
// that is killed loses that much.
const flushAfter = time.Second

// maxPending is how many revisions wait at most. Further ones are not kept: the disk must be very
// slow. When a quarter waits, the rest of [flushAfter] is not waited for.
const maxPending = 4096

// record is who wrote a revision, and when.
type record struct {
	revision, at int64
	sum          uint32
	who          *history.Writer
}

// files keep what a memory notes.
type files struct {
	memory   *Memory
	dir      string
	start    start
	readOnly bool
	log      func(error)
	max      int64 // bytes of each file

	loading sync.Once
	size    int64 // of what is whole in the current file, once it has been loaded

	root   *os.Root // these three belong to the goroutine
	file   *os.File
	failed bool // an error has been logged

	mu         sync.Mutex
	pending    []record
	some, full chan struct{} // have an element if there is something pending, or much
	ending     chan struct{}
	end        sync.Once
	ended      chan struct{}
}

// Keep records in a directory, which need not exist, who writes revisions from now on, and reads
// from there who has written earlier ones. It reads nothing before it must. A file that cannot be
// read or written is logged, and has no other effect. Keep must be called before anything else, and
// Stop at the end.
func (m *Memory) Keep(dir string, now int64, readOnly bool, log func(error)) {
	m.files = &files{
		memory: m, dir: dir, start: start{now, time.Now().UnixNano()}, readOnly: readOnly, log: log,
		max: MaxFileBytes, some: make(chan struct{}, 1), full: make(chan struct{}, 1),
		ending: make(chan struct{}), ended: make(chan struct{}),
	}
	go m.files.run()
}

// Stop writes what has been noted and waits for that.
func (m *Memory) Stop() {
	if f := m.files; f != nil {
		f.end.Do(func() { close(f.ending) })
		<-f.ended
	}
}

// Sum returns the sum of what is written to a key. A deletion has no value.
func Sum(key, value []byte) uint32 {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return max(sum, 1) // 0 stands for none
}

// add adds a record to those that wait. It waits for nothing.
func (f *files) add(r record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readOnly || len(f.pending) >= maxPending {
		return
	}
	f.pending = append(f.pending, r)
	switch len(f.pending) {
	case 1:
		wake(f.some)
	case maxPending / 4:
		wake(f.full)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *files) run() {
	defer close(f.ended)
	defer f.close()
	for {
		select {
		case <-f.some:
		case <-f.ending:
			f.flush()
			return
		}
		pause := time.NewTimer(flushAfter)
		select {
		case <-pause.C:
		case <-f.full:
		case <-f.ending:
		}
		pause.Stop()
		f.flush()
	}
}

func (f *files) close() {
	if f.file != nil {
		f.report(f.file.Close())
	}
	if f.root != nil {
		f.report(f.root.Close())
	}
}

// report logs the first error: those that follow have the same reason.
func (f *files) report(err error) {
	if err != nil && !f.failed {
		f.failed = true
		f.log(fmt.Errorf("record in %s who writes objects: %w; the history may lack writers after the "+
			"next start", f.dir, err))
	}
}

func (f *files) flush() {
	f.mu.Lock()
	records := f.pending
	f.pending = nil
	f.mu.Unlock()
	if len(records) == 0 {
		return
	}
	f.load()
	for len(records) > 0 {
		var frame []byte
		frame, records = encode(f.start, records)
		if err := f.append(frame); err != nil {
			f.report(err)
			return
		}
	}
}

// append writes a frame behind what is whole, so that it also replaces what an error has left.
func (f *files) append(frame []byte) error {
	if f.root == nil {
		if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		root, err := os.OpenRoot(f.dir)
		if err != nil {
			return err
		}
		f.root = root
	}
	if f.size > 0 && f.size+int64(len(frame)) > f.max {
		if f.file != nil {
			if err := f.file.Close(); err != nil {
				return err
			}
			f.file = nil
		}
		if err := f.root.Rename(currentName, olderName); err != nil {
			return err
		}
		f.size = 0
	}
	if f.file == nil {
		file, err := open(f.root, currentName, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return err
		}
		f.file = file
		if err := file.Truncate(f.size); err != nil {
			return err
		}
	}
	if _, err := f.file.WriteAt(frame, f.size); err != nil {
		return err
	}
	f.size += int64(len(frame))
	return nil
}

// open opens a regular file. Anything else might lead elsewhere or block.
func open(root *os.Root, name string, flags int) (*os.File, error) {
	before, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && flags&os.O_CREATE != 0 {
		return root.OpenFile(name, flags|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file (mode %s): remove it", name, before.Mode())
	}
	file, err := root.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	after, err := file.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s was replaced meanwhile", name)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// load reads the files if they have not been read.
func (f *files) load() {
	f.loading.Do(func() {
		root, err := os.OpenRoot(f.dir)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			f.log(fmt.Errorf("read the writers of objects: %w", err))
			return
		}
		defer root.Close()
		last := start{}
		for _, name := range []string{olderName, currentName} {
			data, err := f.read(root, name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				f.log(fmt.Errorf("read the writers of objects: %w", err))
			}
			f.size = decode(data, func(from start, records []record) {
				if from != last {
					last = from
					f.memory.discardAfter(from.revision)
				}
				f.memory.recall(records, f.start.revision)
			})
		}
	})
}

func (f *files) read(root *os.Root, name string) ([]byte, error) {
	file, err := open(root, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, f.max))
}

// recall adds what a file says about revisions before the start.
func (m *Memory) recall(records []record, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		if r.revision <= now {
			m.set(r.revision, r.at, r.sum, *r.who)
		}
	}
}

// discardAfter forgets what a file says about later revisions than the given one. That was the
// last one when a process started, so the etcd that had others is not this one, or is a copy from
// before them.
func (m *Memory) discardAfter(revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.blocks {
		if b.number < revision/block {
			continue
		}
		for i := range b.who {
			if b.sums[i] != 0 && b.number*block+int64(i) > revision {
				b.who[i] = nil
			}
		}
	}
}
