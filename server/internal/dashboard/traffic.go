package dashboard

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kinproc/kinproc/chain/trace"
)

// The boxes in the picture of the chain that are not places at which a request can end.
const (
	clientsBox          = "clients"
	filtersBox          = "filters" // the strip with authentication, flow control and authorization
	extensionServersBox = "extension servers"
	webhooksBox         = "webhooks"
	etcdBox             = "etcd"
)

const (
	// trafficSeconds is how far the picture looks back when nothing has passed for recentSeconds.
	trafficSeconds = 60
	recentSeconds  = 10
)

// line is a line of the picture, from a box to another one. Without From, it is the box To itself.
type line struct{ From, To string }

// passage is what has passed a line or a box.
type passage struct {
	count, ended int
	took         map[int]int // the number by duration, as bucketOf says
}

func (t *passage) add(other *passage) {
	t.count += other.count
	t.ended += other.ended
	for bucket, n := range other.took {
		t.took[bucket] += n
	}
}

// percentile returns the upper bound of a percentile.
func (t *passage) percentile(share float64) time.Duration {
	left := int(math.Ceil(share * float64(t.count)))
	for _, bucket := range slices.Sorted(maps.Keys(t.took)) {
		if left -= t.took[bucket]; left <= 0 {
			return time.Duration(math.Exp2(float64(bucket)/4) * float64(time.Microsecond))
		}
	}
	return 0
}

// passages are those of some time. The lines and the buckets are few, whatever clients send.
type passages map[line]*passage

func (t passages) of(l line) *passage {
	if t[l] == nil {
		t[l] = &passage{took: map[int]int{}}
	}
	return t[l]
}

func (t passages) pass(l line, took time.Duration) {
	one := t.of(l)
	one.count++
	one.took[bucketOf(took)]++
}

// request counts a request in all boxes and lines that it has passed. The time at a server includes
// what is behind it.
func (t passages) request(r *trace.Request) {
	t.pass(line{"", clientsBox}, r.Took)
	t.pass(line{clientsBox, filtersBox}, r.Took)
	at := -1 // in places
	for _, step := range r.Steps {
		place := slices.Index(places, step.At)
		switch {
		case place > at: // the authorizer may be asked again further on
			t.pass(line{"", step.At}, step.Took)
			if place >= aggregatorPlace {
				t.pass(line{before(place), step.At}, step.Took)
			}
			if isProxied(&step) {
				t.pass(line{step.At, extensionServersBox}, step.Took)
				t.pass(line{"", extensionServersBox}, step.Took)
			}
			at = place
		case at < aggregatorPlace:
		case step.At == "etcd":
			t.pass(line{places[at], etcdBox}, step.Took)
			t.pass(line{"", etcdBox}, step.Took)
		case step.At == "webhook":
			t.pass(line{places[at], webhooksBox}, step.Took)
			t.pass(line{"", webhooksBox}, step.Took)
		}
	}
	t.of(line{"", places[max(at, 0)]}).ended++
}

// aggregatorPlace is where the aggregator is in places. The servers follow one another from there.
var aggregatorPlace = slices.Index(places, "aggregator")

// before returns the box that leads to a server.
func before(place int) string {
	if place == aggregatorPlace {
		return filtersBox
	}
	return places[place-1]
}

// isProxied reports whether a step is that of the aggregator, and led to an extension API server.
func isProxied(step *trace.Step) bool {
	return step.At == "aggregator" && strings.HasPrefix(step.Decision, "proxied")
}

// calls reports whether a request has passed a box.
func calls(r *trace.Request, box string) bool {
	return slices.ContainsFunc(r.Steps, func(step trace.Step) bool {
		switch box {
		case extensionServersBox:
			return isProxied(&step)
		case webhooksBox:
			return step.At == "webhook"
		}
		return step.At == box
	})
}

// passing is what passes a box or a line.
type passing struct {
	From      string        `json:"from,omitempty"` // of a line
	To        string        `json:"to"`             // the box, or the end of the line
	PerSecond float64       `json:"perSecond"`
	Ended     float64       `json:"ended"` // those of them that ended at the box
	P95       time.Duration `json:"p95"`   // in nanoseconds
}

// flow is what the picture shows.
type flow struct {
	Seconds int       `json:"seconds"` // of how long
	Boxes   []passing `json:"boxes"`
	Lines   []passing `json:"lines"`
}

// traffic counts the requests of the last minute by second.
type traffic struct {
	seconds [trafficSeconds]struct {
		at int64
		passages
	}
	since int64 // the second of the first request
	shown *flow
	until int64 // the second of shown
}

func (t *traffic) add(r *trace.Request, now time.Time) {
	at := now.Unix()
	if t.since == 0 {
		t.since = at
	}
	second := &t.seconds[at%trafficSeconds]
	if second.at != at {
		second.at, second.passages = at, passages{}
	}
	second.request(r)
}

// flow returns what has passed recently, or in the last minute if nothing has. It is computed once
// in a second, for all pages. While nothing has passed, it stays the same.
func (t *traffic) flow(now time.Time) *flow {
	at := now.Unix()
	if t.shown != nil && t.until == at {
		return t.shown
	}
	f := t.compute(at, recentSeconds)
	if len(f.Boxes) == 0 {
		f = t.compute(at, trafficSeconds)
	}
	if t.until = at; t.shown == nil || len(f.Boxes)+len(t.shown.Boxes) > 0 {
		t.shown = f
	}
	return t.shown
}

func (t *traffic) compute(at int64, seconds int) *flow {
	sum := passages{}
	for _, second := range t.seconds {
		if second.at <= at-int64(seconds) || second.at > at {
			continue
		}
		for l, one := range second.passages {
			sum.of(l).add(one)
		}
	}
	f := &flow{Seconds: seconds}
	lasted := float64(min(int64(seconds), at-t.since+1)) // there may have been no page before
	for l, one := range sum {
		p := passing{
			From: l.From, To: l.To, PerSecond: float64(one.count) / lasted,
			Ended: float64(one.ended) / lasted, P95: one.percentile(.95),
		}
		if l.From == "" {
			f.Boxes = append(f.Boxes, p)
		} else {
			f.Lines = append(f.Lines, p)
		}
	}
	return f
}
