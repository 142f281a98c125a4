package writers

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// request returns the context of a request, as handlers behind WithSender see it.
func request(agent string) (ctx context.Context) {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces?fieldManager=tester", nil)
	r.Header.Set("User-Agent", agent)
	r = r.WithContext(genericapirequest.WithUser(r.Context(), &user.DefaultInfo{Name: "jane"}))
	WithSender(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx = r.Context()
	})).ServeHTTP(nil, r)
	return ctx
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var m Memory
	const last = 50_000
	for revision := int64(1); revision <= last; revision++ {
		m.Note(request(fmt.Sprint(revision, strings.Repeat("x", 2*maxText))), revision, 1)
	}
	if m.bytes > MaxBytes {
		t.Errorf("%d bytes, more than %d", m.bytes, MaxBytes)
	}
	if w, _ := m.Of(1, 1); w != nil {
		t.Error("the oldest revision is not forgotten")
	}
	w, at := m.Of(last, 1)
	if w == nil || at == nil || w.User != "jane" || w.Manager != "tester" ||
		len(w.UserAgent) != maxText || !strings.HasPrefix(w.UserAgent, "50000x") {
		t.Errorf("the newest revision is by %+v", w)
	}
}

// All revisions that are kept at most have a writer if clients are as different as usual.
func TestMemorySuffices(t *testing.T) {
	t.Parallel()
	var m Memory
	var clients []context.Context
	for i := range 20 {
		clients = append(clients, request(fmt.Sprintf("client-%d/1.0 (linux/amd64)", i)))
	}
	const last = 110_000
	for revision := int64(1); revision <= last; revision++ {
		m.Note(clients[revision%20], revision, 1)
	}
	for _, revision := range []int64{1, 60_000, last} {
		if w, _ := m.Of(revision, 1); w == nil {
			t.Errorf("nobody knows who wrote revision %d", revision)
		}
	}
	m.Forget(60_000)
	if w, _ := m.Of(1, 1); w != nil {
		t.Error("revision 1 is not forgotten")
	}
	if w, _ := m.Of(60_000, 1); w == nil {
		t.Error("revision 60000 is forgotten")
	}
}

func TestBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m Memory
		begin := time.Now()
		for revision := int64(1); revision <= 3*block; revision += 2 {
			m.Note(request("client/1.0"), revision, 1)
			time.Sleep(time.Second)
		}
		for seconds, want := range map[int64]int64{
			-1: 0, 0: 1, 1: 3, block: 2*block + 1, 10 * block: 3*block - 1,
		} {
			at := begin.Add(time.Duration(seconds) * time.Second)
			if got := m.Before(at, math.MaxInt64); got != want {
				t.Errorf("after %d s: revision %d, want %d", seconds, got, want)
			}
		}
		if got := m.Before(time.Now(), 3); got != 1 {
			t.Errorf("before revision 3: %d, want 1", got)
		}
	})
}

func BenchmarkNote(b *testing.B) {
	var m Memory
	ctx := request("client/1.0")
	b.ReportAllocs()
	for revision := int64(1); b.Loop(); revision++ {
		m.Note(ctx, revision, 1)
	}
}

// However many revisions there are, they are divided into so many moments, and none is left out.
func TestMoments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m Memory
		if got := m.Moments(time.Second, 10); got == nil || len(got) != 0 {
			t.Errorf("without revisions, the moments are %v", got)
		}
		const last = 3000
		for revision := int64(1); revision <= last; revision++ {
			m.Note(request(fmt.Sprintf("client-%d", revision%20)), revision, 1)
			time.Sleep(700 * time.Millisecond)
		}
		for _, most := range []int{2, 10, 600, last} {
			moments := m.Moments(10*time.Millisecond, most)
			if len(moments) > most || len(moments) < most/3 {
				t.Errorf("%d moments, want about %d", len(moments), most)
			}
			writes, before := 0, int64(0)
			for _, one := range moments {
				writes += one.Writes
				if one.Revision != before+int64(one.Writes) {
					t.Errorf("after revision %d, a moment is %+v", before, one)
				}
				before = one.Revision
				if want := min(one.Writes, writersOfMoment); len(one.Writers) != want {
					t.Errorf("a moment has %d writers, want %d", len(one.Writers), want)
				}
			}
			if writes != last {
				t.Errorf("%d writes are in moments, want %d", writes, last)
			}
		}
		if shortest := m.Moments(10*time.Millisecond, last); len(shortest) != last {
			t.Errorf("%d moments of ten milliseconds, want one for each revision", len(shortest))
		}
	})
}
