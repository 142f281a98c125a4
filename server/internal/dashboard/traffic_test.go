package dashboard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kinproc/kinproc/chain/trace"
)

func passedBy(took time.Duration, at ...trace.Step) *trace.Request {
	return &trace.Request{Code: 200, Took: took, Steps: at}
}

func at(place string, took time.Duration) trace.Step { return trace.Step{At: place, Took: took} }

func TestTraffic(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	filters := []trace.Step{at("authentication", ms), at("authorization", ms)}
	proxied := trace.Step{At: "aggregator", Decision: "proxied to service one/two", Took: 30 * ms}
	now := time.Unix(1_000_000, 0)
	var seen traffic
	for range 20 {
		seen.add(passedBy(8*ms, append(slices.Clone(filters), at("aggregator", 7*ms), at("core", 6*ms),
			at("authorization", ms), at("webhook", 2*ms), at("etcd", ms), at("etcd", ms))...), now)
	}
	seen.add(passedBy(40*ms, append(slices.Clone(filters), proxied, at("response", ms))...), now)
	seen.add(passedBy(ms, filters...), now)
	seen.add(passedBy(9*ms, append(slices.Clone(filters), at("aggregator", 8*ms), at("core", 7*ms),
		at("extensions", 6*ms), at("etcd", 5*ms))...), now.Add(time.Second))

	find := func(f *flow, from, to string) (p passing) {
		for _, p := range append(slices.Clone(f.Boxes), f.Lines...) {
			if p.From == from && p.To == to {
				return p
			}
		}
		return p
	}
	f := seen.flow(now.Add(time.Second)) // two seconds after the first request
	if f.Seconds != recentSeconds {
		t.Errorf("it is of %d seconds", f.Seconds)
	}
	for _, c := range []struct {
		from, to  string
		perSecond float64
		p95       time.Duration
	}{
		{"", "clients", 23, 9 * ms}, {"clients", "filters", 23, 9 * ms},
		{"", "authorization", 23, ms}, {"filters", "aggregator", 22, 8 * ms},
		{"aggregator", "extension servers", 1, 30 * ms}, {"", "extension servers", 1, 30 * ms},
		{"aggregator", "core", 21, 6 * ms}, {"core", "extensions", 1, 6 * ms},
		{"core", "webhooks", 20, 2 * ms}, {"core", "etcd", 40, ms}, {"extensions", "etcd", 1, 5 * ms},
		{"", "etcd", 41, ms}, {"extensions", "not found", 0, 0}, {"aggregator", "etcd", 0, 0},
	} {
		p := find(f, c.from, c.to)
		if p.PerSecond != c.perSecond/2 || p.P95 < c.p95 || p.P95 > c.p95*6/5 {
			t.Errorf("%s → %s: %.1f/s in %s, want %.1f in %s", c.from, c.to, p.PerSecond, p.P95,
				c.perSecond/2, c.p95)
		}
	}
	for box, ended := range map[string]float64{"authorization": .5, "core": 10, "aggregator": .5} {
		if p := find(f, "", box); p.Ended != ended {
			t.Errorf("%.1f requests a second ended at %s, want %.1f", p.Ended, box, ended)
		}
	}

	// It is computed once in a second. When nothing passes, it is of the last minute, then empty.
	if seen.flow(now.Add(1500*ms)) != f {
		t.Error("it is computed again within a second")
	}
	if f = seen.flow(now.Add(30 * time.Second)); f.Seconds != trafficSeconds ||
		find(f, "", "clients").PerSecond != 23./31 {
		t.Errorf("after half a minute, it is %+v", f)
	}
	if f = seen.flow(now.Add(2 * time.Minute)); len(f.Boxes) > 0 ||
		seen.flow(now.Add(3*time.Minute)) != f {
		t.Errorf("after two minutes, it is %+v, or is computed again", f)
	}
}

// Whatever clients send, the picture is small.
func TestTrafficIsBounded(t *testing.T) {
	t.Parallel()
	var seen traffic
	now := time.Unix(1_000_000, 0)
	for i := range 5000 {
		r := passedBy(time.Duration(i)*time.Millisecond, at(fmt.Sprint("step-", i), time.Hour),
			at("authentication", 1), at("core", 1))
		r.Path, r.Method = fmt.Sprint("/", i), fmt.Sprint("M", i)
		seen.add(r, now.Add(time.Duration(i)*time.Second))
	}
	f := seen.flow(now.Add(5000 * time.Second))
	if len(f.Boxes) > 12 || len(f.Lines) > 12 {
		t.Errorf("it has %d boxes and %d lines", len(f.Boxes), len(f.Lines))
	}
	for _, second := range seen.seconds {
		for l, one := range second.passages {
			if len(one.took) > 200 {
				t.Errorf("%v has %d buckets", l, len(one.took))
			}
		}
	}
}
