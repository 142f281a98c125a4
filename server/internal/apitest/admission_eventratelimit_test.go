package apitest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiadmission "k8s.io/apiserver/pkg/admission"
)

const eventRateLimits = `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1",
	"kind":"Configuration","limits":`

// eventRateLimitSecond returns a plugin that has been asked about a pair of events, and its second
// answer. A bucket gets another event after a second, so a pair that took longer is asked about
// again.
func eventRateLimitSecond(
	t *testing.T, limit string, pair [2]*corev1.Event,
) (p apiadmission.Interface, answer error) {
	t.Helper()
	for {
		p, err := configuredPlugin("EventRateLimit",
			eventRateLimits+`[{"type":"`+limit+`","qps":1,"burst":1}]}`, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := ask(t, p, "events", pair[0], nil); err != nil {
			t.Errorf("%s: create the first event: %v", limit, err)
		}
		answer = ask(t, p, "events", pair[1], nil)
		if time.Since(began) < time.Second {
			return p, answer
		}
	}
}

func TestAdmissionEventRateLimit(t *testing.T) {
	t.Parallel()
	event := func(namespace, component, object string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace},
			Source:         corev1.EventSource{Component: component},
			InvolvedObject: corev1.ObjectReference{Name: object},
		}
	}
	// Each bucket holds one event. The second event of a pair passes only if it has a separate
	// bucket.
	pairs := map[string][2]*corev1.Event{
		"same":            {event("a", "c", "o"), event("a", "c", "o")},
		"other object":    {event("a", "c", "o"), event("a", "c", "p")},
		"other component": {event("a", "c", "o"), event("a", "d", "o")},
		"other namespace": {event("a", "c", "o"), event("b", "c", "p")},
	}
	for limit, separate := range map[string][]string{
		"Server":          nil,
		"User":            nil,
		"Namespace":       {"other namespace"},
		"SourceAndObject": {"other object", "other component", "other namespace"},
	} {
		fits := map[string]bool{}
		for _, s := range separate {
			fits[s] = true
		}
		for name, pair := range pairs {
			p, err := eventRateLimitSecond(t, limit, pair)
			if fits[name] && err != nil || !fits[name] && !apierrors.IsTooManyRequests(err) {
				t.Errorf("%s, %s: got error %v, want admitted: %t", limit, name, err, fits[name])
			}
			for resource, obj := range map[string]runtime.Object{
				"configmaps":           &corev1.ConfigMap{},
				"events.events.k8s.io": &eventsv1.Event{},
			} {
				if err := ask(t, p, resource, obj, nil); err != nil {
					t.Errorf("%s: %s must not be limited: %v", limit, resource, err)
				}
			}
		}
	}
}

func TestAdmissionEventRateLimitConfiguration(t *testing.T) {
	t.Parallel()
	for config, ok := range map[string]bool{
		``:  false,
		`{`: false,
		`{"apiVersion":"v1","kind":"Configuration",
			"limits":[{"type":"Server","qps":1,"burst":1}]}`: false,
		eventRateLimits + `[]}`: false,
		eventRateLimits + `[{"type":"Server","qps":1,"burst":1},
			{"type":"User","qps":1,"burst":1,"cacheSize":9}]}`: true,
		eventRateLimits + `[{"type":"Nope","qps":1,"burst":1}]}`:                  false,
		eventRateLimits + `[{"type":"Server","qps":0,"burst":1}]}`:                false,
		eventRateLimits + `[{"type":"Server","qps":1}]}`:                          false,
		eventRateLimits + `[{"type":"Server","qps":1,"burst":1,"cacheSize":-1}]}`: true,
		eventRateLimits + `[{"type":"User","qps":1,"burst":1,"cacheSize":-1}]}`:   false,
	} {
		if _, err := configuredPlugin("EventRateLimit", config, nil); (err == nil) != ok {
			t.Errorf("%s: got error %v, want accepted: %t", config, err, ok)
		}
	}
}
