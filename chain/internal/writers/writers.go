// Package writers remembers who wrote each revision of etcd.
package writers

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/history"
)

// MaxBytes is about how much memory a [Memory] takes at most. It suffices for the 100,000 revisions
// that are kept at most, with many different clients.
const MaxBytes = 4 << 20

// maxText limits the strings of a writer, some of which the client chooses.
const maxText = 256

// RevisionAnnotation is the annotation of audit events that has the last revision that the request
// has written.
const RevisionAnnotation = "kinproc.dev/revision"

// sender is what is known of a request before it is impersonated.
type sender struct {
	user     user.Info
	request  *http.Request
	revision atomic.Int64 // that it has written
}

type contextKey struct{}

// WithSender puts the sender of a request that may write into its context. It must be behind
// authentication and auditing, and in front of impersonation.
func WithSender(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			handler.ServeHTTP(w, r)
			return
		}
		who, _ := genericapirequest.UserFrom(r.Context())
		s := &sender{user: who, request: r}
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, s)))
		if revision := s.revision.Load(); revision != 0 {
			audit.AddAuditAnnotation(r.Context(), RevisionAnnotation, strconv.FormatInt(revision, 10))
		}
	})
}

// Known reports whether ctx is that of a request whose sender is known.
func Known(ctx context.Context) bool { return ctx.Value(contextKey{}) != nil }

// writer returns the writer of a request with the given context. Its strings are those of the
// request.
func (s *sender) writer(ctx context.Context) (w history.Writer) {
	w.User, w.UserAgent = s.user.GetName(), s.request.UserAgent()
	if now, ok := genericapirequest.UserFrom(ctx); ok && now.GetName() != w.User {
		w.User, w.Impersonator = now.GetName(), w.User
	}
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok {
		w.Verb, w.Subresource = info.Verb, info.Subresource
	}
	if strings.Contains(s.request.URL.RawQuery, "fieldManager=") {
		w.Manager = s.request.URL.Query().Get("fieldManager")
	}
	if w.Manager == "" && !strings.HasPrefix(w.Verb, "delete") {
		w.Manager, _, _ = strings.Cut(w.UserAgent, "/") // as the API server does
	}
	return w
}

// block is the number of consecutive revisions that share an allocation.
const block = 1024

// blockBytes is the size of a [revisions] without its writers.
const blockBytes = block * (8 + 8 + 4)

// revisions are the writers of consecutive revisions.
type revisions struct {
	number  int64 // the first revision is number*block
	times   [block]int64
	who     [block]*history.Writer
	sums    [block]uint32 // of what was written, if a file has said it, and else 0
	writers map[history.Writer]*history.Writer
	bytes   int
}

// Memory remembers who wrote the latest revisions. Its zero value is ready for use, and forgets
// them when the process ends; see [Memory.Keep].
type Memory struct {
	files *files // nil if nothing is kept

	mu     sync.Mutex
	blocks []*revisions // in order
	bytes  int
}

// Note notes that the request with the given context has written a revision, which is what has the
// sum. It reports whether the memory has grown by a block, so that it is time to [Memory.Forget]
// what is no longer needed.
func (m *Memory) Note(ctx context.Context, revision int64, sum uint32) (grown bool) {
	s, ok := ctx.Value(contextKey{}).(*sender)
	if !ok || s.user == nil {
		return false
	}
	s.revision.Store(revision)
	w := s.writer(ctx)
	now := time.Now().UnixNano()
	m.mu.Lock()
	defer m.mu.Unlock()
	who, grown := m.set(revision, now, 0, w)
	if m.files != nil {
		m.files.add(record{revision, now, sum, who})
	}
	return grown
}

// set sets who wrote a revision. It returns the one copy of the writer, and whether there is a new
// block. The caller holds the mutex.
func (m *Memory) set(
	revision, at int64, sum uint32, w history.Writer,
) (who *history.Writer, grown bool) {
	blocks := len(m.blocks)
	b := m.block(revision)
	grown = len(m.blocks) > blocks
	who = m.intern(b, w)
	b.times[revision%block], b.who[revision%block], b.sums[revision%block] = at, who, sum
	for m.bytes > MaxBytes && len(m.blocks) > 1 {
		m.drop()
	}
	return who, grown
}

// block returns the block of a revision. The caller holds the mutex.
func (m *Memory) block(revision int64) *revisions {
	number := revision / block
	i := len(m.blocks)
	for ; i > 0 && m.blocks[i-1].number >= number; i-- { // nearly always the last one
		if m.blocks[i-1].number == number {
			return m.blocks[i-1]
		}
	}
	b := &revisions{number: number, writers: map[history.Writer]*history.Writer{}, bytes: blockBytes}
	m.bytes += b.bytes
	m.blocks = slices.Insert(m.blocks, i, b)
	return b
}

// intern returns the one copy of a writer in a block. The caller holds the mutex.
func (m *Memory) intern(b *revisions, w history.Writer) *history.Writer {
	for _, text := range texts(&w) {
		if len(*text) > maxText {
			*text = strings.ToValidUTF8((*text)[:maxText], "")
		}
	}
	if same := b.writers[w]; same != nil {
		return same
	}
	const entry = 300 // the structure, as a key and as a value
	size := entry
	for _, text := range texts(&w) {
		size += len(*text)
		*text = strings.Clone(*text) // the request may have it as a part of something large
	}
	b.bytes += size
	m.bytes += size
	b.writers[w] = &w
	return &w
}

// drop forgets the oldest revisions. The caller holds the mutex.
func (m *Memory) drop() {
	m.bytes -= m.blocks[0].bytes
	m.blocks[0] = nil
	m.blocks = m.blocks[1:]
}

// Of returns who wrote a revision and when, or nil. An entry of a file counts only if
// its checksum is that of what was written, since another revision may have had the same number.
func (m *Memory) Of(revision int64, sum uint32) (*history.Writer, *time.Time) {
	if m.files != nil {
		m.files.load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range slices.Backward(m.blocks) {
		i := revision % block
		if b.number == revision/block && b.who[i] != nil && (b.sums[i] == 0 || b.sums[i] == sum) {
			at := time.Unix(0, b.times[i]).UTC()
			return b.who[i], &at
		}
	}
	return nil, nil
}

// Before returns the newest revision below a limit that was written at a time or earlier, or 0 if
// none is known. What a file says of it may be about another etcd: see [Memory.Of].
func (m *Memory) Before(at time.Time, limit int64) int64 {
	if m.files != nil {
		m.files.load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range slices.Backward(m.blocks) {
		first := b.number * block
		for i := min(block, limit-first) - 1; i >= 0; i-- {
			if b.who[i] != nil && b.times[i] <= at.UnixNano() {
				return first + i
			}
		}
	}
	return 0
}

// writersOfMoment bounds the writers of a moment.
const writersOfMoment = 8

// written is a revision with its writer.
type written struct {
	revision, at int64
	who          *history.Writer
}

// Moments returns the revisions that are known as moments of a duration, the oldest first. If they
// are more than a number, the moments are longer. What a file says of them may be about another
// etcd: see [Memory.Of].
func (m *Memory) Moments(shortest time.Duration, most int) []history.Moment {
	all := m.all()
	for each := shortest; ; each *= 2 {
		if moments, ok := moments(all, int64(each), most); ok {
			return moments
		}
	}
}

// all returns all revisions that are known. Writers wait for what is done with the lock held, so it
// is no more than a copy.
func (m *Memory) all() []written {
	if m.files != nil {
		m.files.load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]written, 0, len(m.blocks)*block)
	for _, b := range m.blocks {
		for i, who := range b.who {
			if who != nil {
				all = append(all, written{b.number*block + int64(i), b.times[i], who})
			}
		}
	}
	return all
}

// moments divides revisions into moments, if they are no more than a number.
func moments(all []written, each int64, most int) (list []history.Moment, ok bool) {
	list = []history.Moment{}
	var end int64 // of the last moment
	var last *history.Moment
	var before *history.Writer
	for _, w := range all {
		if last == nil || w.at >= end {
			if len(list) == most {
				return nil, false
			}
			list = append(list, history.Moment{})
			last, before, end = &list[len(list)-1], nil, w.at-w.at%each+each
		}
		last.Revision, last.Time = w.revision, time.Unix(0, w.at).UTC()
		last.Writes++
		if w.who == before {
			continue
		}
		before = w.who
		one := history.Writer{User: w.who.User, UserAgent: w.who.UserAgent}
		if len(last.Writers) < writersOfMoment && !slices.Contains(last.Writers, one) {
			last.Writers = append(last.Writers, one)
		}
	}
	return list, true
}

// Written reports whether this process has written a revision, and noted it.
func (m *Memory) Written(revision int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.blocks, func(b *revisions) bool {
		return b.number == revision/block && b.who[revision%block] != nil && b.sums[revision%block] == 0
	})
}

// Forget forgets the revisions before the given one.
func (m *Memory) Forget(before int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.blocks) > 0 && m.blocks[0].number < before/block {
		m.drop()
	}
}
