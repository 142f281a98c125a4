package server

import (
	"github.com/spf13/pflag"
)

func (o *Options) addLimitFlags(f *pflag.FlagSet) {
	f.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", o.MaxRequestsInFlight,
		"number of concurrent requests, not counting watches, that are added to "+
			"--max-mutating-requests-inflight and divided by API Priority and Fairness; without "+
			"it, the limit of requests that read, or none if 0")
	f.IntVar(&o.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight",
		o.MaxMutatingRequestsInFlight,
		"see --max-requests-inflight; without API Priority and Fairness, the limit of requests "+
			"that write, or none if 0")
	addNegated(f, &o.DisablePriorityAndFairness, "enable-priority-and-fairness",
		"divide concurrent requests among clients with API Priority and Fairness")
	f.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout,
		"how long a request may take that is not long-running")
	f.IntVar(&o.MinRequestTimeout, "min-request-timeout", o.MinRequestTimeout,
		"shortest time, in seconds, after which a watch ends that asks for no timeout; the longest "+
			"is twice as long")
	addNegated(f, &o.DisableProfiling, "profiling", "serve profiles at /debug/pprof")
}

// validateTimes validates how long requests and events may last.
func (o *Options) validateTimes() []error {
	var errs []error
	if o.EventTTL < 0 {
		errs = append(errs, o.wrong("EventTTL", "event-ttl", "%s is negative", o.EventTTL))
	}
	if o.RequestTimeout <= 0 {
		errs = append(errs, o.wrong("RequestTimeout", "request-timeout", "%s is not positive",
			o.RequestTimeout))
	}
	if o.MinRequestTimeout < 0 {
		errs = append(errs, o.wrong("MinRequestTimeout", "min-request-timeout", "%d is negative",
			o.MinRequestTimeout))
	}
	return errs
}
