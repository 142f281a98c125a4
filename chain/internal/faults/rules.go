// Package faults lets requests fail on purpose, as package fault describes it.
//
// Without faults, a request costs one atomic read, and a watch an entry in a map.
package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/chain/internal/effect"
)

// maxHits limits the hits that a fault remembers, and maxFaults the faults.
const (
	maxHits   = 1000
	maxFaults = 1000
)

// Config says what the faults need from the servers.
type Config struct {
	// Own reports whether a context is that of a request by which the control plane calls itself.
	// If it is nil, there are none.
	Own func(context.Context) bool
	// Revision returns the present revision of the stored objects.
	Revision   func(context.Context) (int64, error)
	Serializer runtime.NegotiatedSerializer
}

// Faults are the faults of a control plane. Create them with [New].
type Faults struct {
	config Config
	some   atomic.Bool // whether there are any that may still hit

	mu      sync.Mutex
	lastID  int
	last    int // the number of the last watch
	all     []*injected
	watches map[*watching]struct{}
}

// New returns no faults yet.
func New(c Config) *Faults {
	if c.Own == nil {
		c.Own = func(context.Context) bool { return false }
	}
	return &Faults{config: c, watches: map[*watching]struct{}{}}
}

// Stop removes all faults, so that nothing waits for one.
func (f *Faults) Stop() { f.removeAll() }

// injected is a fault that has been added.
type injected struct {
	fault.Fault
	released chan struct{} // closed when the fault is removed, or its time is over
	skipped  int
	chance   *rand.Rand  // nil unless Rule.Chance is set
	timer    *time.Timer // nil unless Rule.For is set
}

// effect returns what the server carries out.
func (one *injected) effect() effect.Effect { return one.Spec.Effect.Internal() }

// add adds a fault, which hits the watches that are running, too.
func (f *Faults) add(ctx context.Context, spec fault.Spec) (added fault.Fault, err error) {
	if err := spec.Validate(); err != nil {
		return added, apierrors.NewBadRequest(err.Error())
	}
	if is := spec.Effect.Internal(); is.Type == effect.Freeze && is.Revision == 0 {
		now, err := f.config.Revision(ctx)
		if err != nil {
			return added, fmt.Errorf("the present revision: %w", err)
		}
		spec.Effect = fault.FreezeAt(now)
	}
	one := &injected{Fault: fault.Fault{Spec: spec}, released: make(chan struct{})}
	if c := spec.Rule.Chance; c > 0 && c < 1 {
		one.chance = rand.New(rand.NewPCG(spec.Rule.Seed, 0))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == maxFaults {
		return added, apierrors.NewBadRequest(
			fmt.Sprintf("there are %d faults already: remove some", maxFaults))
	}
	f.lastID++
	one.ID = strconv.Itoa(f.lastID)
	f.all = append(f.all, one)
	f.some.Store(true)
	if d := spec.Rule.For.Duration; d > 0 {
		one.timer = time.AfterFunc(d, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.release(one)
		})
	}
	for _, w := range slices.SortedFunc(maps.Keys(f.watches), (*watching).compare) {
		if one.disturbsRunning() && f.hits(one, &w.request) {
			w.disturb(one)
		}
	}
	return one.Fault, nil
}

// end lets a fault hit no more requests. The caller holds the mutex.
func (f *Faults) end(one *injected) {
	one.Status.Ended = true
	f.some.Store(slices.ContainsFunc(f.all, func(o *injected) bool { return !o.Status.Ended }))
}

// release ends a fault, and what it holds. The caller holds the mutex.
func (f *Faults) release(one *injected) {
	f.end(one)
	if one.timer != nil {
		one.timer.Stop()
	}
	select {
	case <-one.released:
	default:
		close(one.released)
	}
}

// list returns all faults in the order in which they were added.
func (f *Faults) list() []fault.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]fault.Fault, len(f.all))
	for i, one := range f.all {
		all[i] = one.Fault
		all[i].Status.Hits = slices.Clone(one.Status.Hits)
	}
	return all
}

// remove removes a fault and returns it.
func (f *Faults) remove(id string) (fault.Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.all, func(one *injected) bool { return one.ID == id })
	if i < 0 {
		return fault.Fault{}, false
	}
	one := f.all[i]
	f.all = slices.Delete(f.all, i, i+1)
	f.release(one)
	return one.Fault, true
}

func (f *Faults) removeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.all
	f.all = nil
	for _, one := range all {
		f.release(one)
	}
}

// request is what rules know about a request.
type request struct {
	path, uri string
	agent     string
	user      string
	own       bool
	info      *genericapirequest.RequestInfo
	http      *http.Request
	name      string // of the object; see readName
}

func (f *Faults) describe(r *http.Request) (request, bool) {
	info, ok := genericapirequest.RequestInfoFrom(r.Context())
	if !ok || r.URL.Path == fault.Path || strings.HasPrefix(r.URL.Path, fault.Path+"/") {
		return request{}, false
	}
	who, ok := genericapirequest.UserFrom(r.Context())
	if !ok {
		who = &user.DefaultInfo{Name: user.Anonymous}
	}
	return request{
		path: r.URL.Path, uri: r.URL.RequestURI(), agent: r.UserAgent(), user: who.GetName(),
		own: f.config.Own(r.Context()), info: info, http: r, name: info.Name,
	}, true
}

// find returns the first fault that hits a request, or nil.
func (f *Faults) find(r *request) *injected {
	if f.wantsNames() {
		r.readName() // which waits for the client
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.all {
		if f.hits(one, r) {
			return one
		}
	}
	return nil
}

// wantsNames reports whether a rule selects by the names of objects.
func (f *Faults) wantsNames() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.all, func(one *injected) bool {
		return one.Spec.Rule.Name != "" && !one.Status.Ended
	})
}

// hits reports whether a fault hits a request, and counts that. The caller holds the mutex.
func (f *Faults) hits(one *injected, r *request) bool {
	if one.Status.Ended || !one.selects(r) {
		return false
	}
	if one.skipped < one.Spec.Rule.Skip {
		one.skipped++
		return false
	}
	if one.chance != nil && one.chance.Float64() >= one.Spec.Rule.Chance {
		return false
	}
	one.Status.Count++
	if len(one.Status.Hits) < maxHits {
		one.Status.Hits = append(one.Status.Hits, fault.Hit{
			Time: time.Now(), User: cut(r.user), UserAgent: cut(r.agent), Verb: r.info.Verb,
			URI: cut(r.uri), Namespace: cut(r.info.Namespace), Name: cut(r.name),
		})
	}
	if one.Status.Count == one.Spec.Rule.Times {
		f.end(one)
	}
	return true
}

// maxText limits the strings of a hit, in bytes, which a client chooses.
const maxText = 1 << 10

// cut returns a copy of the beginning of a text.
func cut(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// selects reports whether the rule selects a request.
func (one *injected) selects(r *request) bool {
	rule, info := &one.Spec.Rule, r.info
	switch verbs := one.effect().Type.Verbs(); {
	case r.own && rule.User == "" && rule.UserAgent == "",
		rule.User != "" && rule.User != r.user,
		!strings.Contains(r.agent, rule.UserAgent),
		rule.Verb != "" && !slices.Contains(strings.Split(rule.Verb, ","), info.Verb),
		verbs != nil && (!info.IsResourceRequest || !slices.Contains(verbs, info.Verb)),
		rule.Namespace != "" && rule.Namespace != info.Namespace,
		!one.selectsResource(info):
		return false
	}
	if rule.Path != "" {
		if ok, _ := path.Match(rule.Path, r.path); !ok { // the pattern has been checked
			return false
		}
	}
	return rule.Name == "" || rule.Name == r.name
}

func (one *injected) selectsResource(info *genericapirequest.RequestInfo) bool {
	rule := &one.Spec.Rule
	if rule.Resource == "" {
		return true
	}
	resource, group, qualified := strings.Cut(rule.Resource, ".")
	return info.IsResourceRequest && resource == info.Resource &&
		(!qualified || group == info.APIGroup) &&
		(rule.Subresource == "*" || rule.Subresource == info.Subresource)
}
