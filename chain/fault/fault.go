// Package fault defines the faults that a control plane can have on purpose, and the protocol by
// which clients add them. A [Rule] selects requests, and an [Effect] is what happens to them. So
// tests see how a controller takes a conflict, a lost answer, or a view that is late.
//
// Faults are added, listed and removed at the non-resource URL [Path]. The user must be allowed to
// post, get and delete it, as the members of system:masters are.
package fault

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Path is the non-resource URL of the faults. A GET lists them, a POST adds a [Fault], and a DELETE
// removes them all. Below it, each fault has a URL that ends with its ID, for GET and DELETE.
const Path = "/kinproc/faults"

// Annotation is the key of the audit annotation of a request that a fault has hit. Its value is the
// effect.
const Annotation = "kinproc.dev/fault"

// Rule selects requests. A request must meet all fields that are not empty, so the zero value
// selects all requests of clients.
//
// The control plane calls itself too. Such requests are selected only if User or UserAgent is set,
// such as the UserAgent "deployment-controller". Requests for [Path] are never selected.
type Rule struct {
	// User is the name of a user. Of a request that impersonates, it is the name that it assumes.
	User string `json:"user,omitempty"`
	// UserAgent is a part of the request's header User-Agent.
	UserAgent string `json:"userAgent,omitempty"`
	// Verb is a verb of authorization, such as "update", or several with commas between them. That of
	// other URLs is the method in lower case.
	Verb string `json:"verb,omitempty"`
	// Resource is the plural name of a resource, such as "deployments", or with its group, such as
	// "deployments.apps".
	Resource string `json:"resource,omitempty"`
	// Subresource is such as "status". "*" stands for any, and for the resource itself. If it is empty
	// and Resource is not, requests for subresources are not selected.
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	// Name is the name of an object. Of a request that creates one, the name is that in its body.
	Name string `json:"name,omitempty"`
	// Path is a pattern for the path, as of [path.Match], such as "/healthz".
	Path string `json:"path,omitempty"`

	// Skip is how many of the selected requests pass before the fault begins.
	Skip int `json:"skip,omitempty"`
	// Times is how many requests the fault hits. Zero stands for all.
	Times int `json:"times,omitempty"`
	// Chance is the probability with which the fault hits a request, between 0 and 1. Zero stands
	// for 1. The same Seed makes the same decisions in the same order.
	Chance float64 `json:"chance,omitempty"`
	Seed   uint64  `json:"seed,omitempty"`
	// For is how long the fault lasts, in nanoseconds in JSON. Zero stands for until it is removed.
	For time.Duration `json:"for,omitempty"`
	// Optional says that the fault need not hit any request. Without it, a test fails and kinproc exec
	// returns an error if there was none. The server itself does not mind.
	Optional bool `json:"optional,omitempty"`
}

// Action is what happens to a request.
type Action string

// The actions. Those that are said to be for some verbs select no other requests.
const (
	// Status answers with Effect.Status, before the request has any effect.
	Status Action = "status"
	// Conflict answers 409, as if the object had changed since the client read it. It is for update,
	// patch and delete.
	Conflict Action = "conflict"
	// Timeout answers 504 at once, as if the request had not been done in time. It has no effect.
	Timeout Action = "timeout"
	// LoseAnswer carries out the request, and then ends the connection instead of answering.
	LoseAnswer Action = "lose-answer"
	// Cut ends the connection before the request has any effect. Over HTTP/2, only the request's
	// stream is reset; clients in this process get "connection reset by peer".
	Cut Action = "cut"
	// Delay lets the request wait for Effect.Delay first, which is at most [MaxDelay].
	Delay Action = "delay"
	// EndWatch ends a watch as its timeout would. It is for watch, and like the following three, it
	// hits the watches that are running, too.
	EndWatch Action = "end-watch"
	// BreakWatch ends a watch in the middle of its response.
	BreakWatch Action = "break-watch"
	// ExpireWatch ends a watch with 410, as if its resource version had been compacted, so that the
	// client has to list again.
	ExpireWatch Action = "expire-watch"
	// HoldWatch keeps back the events of a watch until the fault is removed.
	HoldWatch Action = "hold-watch"
	// Freeze lets reads see the state of Effect.Revision until the fault is removed. It is for get,
	// list and watch. Watches that are running keep back later events. Extension API servers do not
	// notice.
	Freeze Action = "freeze"
	// Behind lets reads see the state as it was Effect.Revisions revisions ago; each change of any
	// object is a revision. It is for get, list and watch. Watches that are running end. Extension API
	// servers do not notice.
	Behind Action = "behind"
)

// MaxDelay is the longest delay. Nobody waits longer for the answer to a request.
const MaxDelay = time.Hour

// Effect is what happens to the requests that a rule selects.
type Effect struct {
	Action Action `json:"action"`
	// Status is the answer of [Status]: its Code, Reason, Message and Details, of which
	// RetryAfterSeconds is sent in the header Retry-After too.
	Status *metav1.Status `json:"status,omitempty"`
	// Delay is for [Delay], in nanoseconds in JSON.
	Delay time.Duration `json:"delay,omitempty"`
	// Revision is for [Freeze]. Zero stands for the present one.
	Revision int64 `json:"revision,omitempty"`
	// Revisions is for [Behind].
	Revisions int64 `json:"revisions,omitempty"`
}

// Verbs returns the verbs that an action is for, or nil if it is for all.
func (a Action) Verbs() []string {
	switch a {
	case Conflict:
		return []string{"update", "patch", "delete"}
	case EndWatch, BreakWatch, ExpireWatch, HoldWatch:
		return []string{"watch"}
	case Freeze, Behind:
		return []string{"get", "list", "watch"}
	}
	return nil
}

// Fault is a rule with its effect.
type Fault struct {
	// ID names the fault. The server sets it.
	ID     string `json:"id,omitempty"`
	Rule   Rule   `json:"rule"`
	Effect Effect `json:"effect"`
	// Hits are the first thousand requests that the fault has hit, and Count is the number of all.
	Hits  []Hit `json:"hits,omitempty"`
	Count int   `json:"count"`
	// Ended is true if the fault hits no more requests, because of Rule.Times or Rule.For.
	Ended bool `json:"ended,omitempty"`
}

// List is the answer to a GET of [Path].
type List struct {
	Items []Fault `json:"items"`
}

// Hit is a request that a fault has hit.
type Hit struct {
	Time      time.Time `json:"time"`
	User      string    `json:"user"`
	UserAgent string    `json:"userAgent,omitempty"`
	Verb      string    `json:"verb"`
	// URI is the request's path and query. Namespace and Name are those of the object, if the path or
	// Rule.Name has one.
	URI       string `json:"uri"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// String returns the hit in a line.
func (h Hit) String() string {
	return fmt.Sprintf("%s %s by %s", h.Verb, h.URI, h.User)
}

// Validate returns an error for a fault that makes no sense.
func (f *Fault) Validate() error {
	return errors.Join(f.Rule.validate(f.Effect.Action), f.Effect.validate())
}

func (r *Rule) validate(action Action) error {
	var errs []error
	if _, err := path.Match(r.Path, ""); err != nil {
		errs = append(errs, fmt.Errorf("path: %q is not a pattern such as /api/v1/*: %w", r.Path, err))
	}
	if !(r.Chance >= 0 && r.Chance <= 1) { // not a number is neither
		errs = append(errs, fmt.Errorf("chance: %v is not between 0 and 1", r.Chance))
	}
	for name, n := range map[string]int64{
		"skip": int64(r.Skip), "times": int64(r.Times), "for": int64(r.For),
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s: must not be negative", name))
		}
	}
	if r.Subresource != "" && r.Resource == "" {
		errs = append(errs, errors.New("subresource: needs a resource"))
	}
	if verbs := action.Verbs(); r.Verb != "" && verbs != nil &&
		!slices.ContainsFunc(strings.Split(r.Verb, ","), func(v string) bool {
			return slices.Contains(verbs, v)
		}) {
		errs = append(errs, fmt.Errorf("verb: %s is for %s, not for %s", action,
			strings.Join(verbs, ", "), r.Verb))
	}
	return errors.Join(errs...)
}

func (e *Effect) validate() error {
	if e.Status != nil && e.Action != Status {
		return errors.New("a reason, message or retry-after is for status only")
	}
	switch e.Action {
	case Conflict, Timeout, LoseAnswer, Cut, EndWatch, BreakWatch, ExpireWatch, HoldWatch:
	case Status:
		if e.Status == nil || e.Status.Code < http.StatusBadRequest || e.Status.Code > 599 {
			return errors.New("status: needs a code from 400 to 599")
		}
		if d := e.Status.Details; d != nil && d.RetryAfterSeconds < 0 {
			return errors.New("retry-after: must not be negative")
		}
	case Delay:
		if e.Delay <= 0 {
			return errors.New("delay: must be positive")
		}
		if e.Delay > MaxDelay {
			return fmt.Errorf("delay: must be at most %s, and is %s", MaxDelay, e.Delay)
		}
	case Freeze:
		if e.Revision < 0 {
			return errors.New("freeze: a revision must not be negative")
		}
	case Behind:
		if e.Revisions <= 0 {
			return errors.New("behind: needs a positive number of revisions")
		}
	default:
		return fmt.Errorf("%q is not an action", e.Action)
	}
	return nil
}
