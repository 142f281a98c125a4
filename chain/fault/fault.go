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
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/chain/internal/effect"
)

// Path is the non-resource URL of the faults. A GET lists them, a POST adds a [Spec], and a DELETE
// removes them all. Below it, each fault has a URL that ends with its ID, for GET and DELETE.
const Path = "/kinproc/v1/faults"

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
	// Verb is a verb of authorization, such as "update", or several with commas between them. That
	// of other URLs is the method in lower case.
	Verb string `json:"verb,omitempty"`
	// Resource is the plural name of a resource, such as "deployments", or with its group, such as
	// "deployments.apps".
	Resource string `json:"resource,omitempty"`
	// Subresource is such as "status". "*" stands for any, and for the resource itself. If it is
	// empty and Resource is not, requests for subresources are not selected.
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
	// For is how long the fault lasts. Zero stands for until it is removed.
	For metav1.Duration `json:"for,omitzero"`
	// Optional says that the fault need not hit any request. Without it, a test fails and kinproc
	// exec returns an error if there was none. The server itself does not mind.
	Optional bool `json:"optional,omitempty"`
}

// Fault is a fault that a control plane has.
type Fault struct {
	// ID names the fault.
	ID     string `json:"id"`
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// Spec is a rule with its effect.
type Spec struct {
	Rule   Rule   `json:"rule"`
	Effect Effect `json:"effect"`
}

// Status is what a fault has done so far.
type Status struct {
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
	// URI is the request's path and query. Namespace and Name are those of the object, if the path
	// or Rule.Name has one.
	URI       string `json:"uri"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// String returns the hit in a line.
func (h Hit) String() string {
	return fmt.Sprintf("%s %s by %s", h.Verb, h.URI, h.User)
}

// verbs are those of resources, and then the methods of other URLs.
var verbs = []string{
	"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy",
	"post", "put", "head", "options", "connect", "trace",
}

// An UnknownError is about a word that means nothing where it is.
type UnknownError struct {
	// Word is the word, and Known the words that mean something there.
	Word  string
	Known []string

	message string
}

// Error says what the word is not.
func (e *UnknownError) Error() string { return e.message }

// Validate returns an error for a fault that makes no sense.
func (s *Spec) Validate() error {
	return errors.Join(s.Rule.validate(s.Effect.effect.Type), s.Effect.effect.Validate())
}

func (r *Rule) validate(of effect.Type) error {
	var errs []error
	if _, err := path.Match(r.Path, ""); err != nil {
		errs = append(errs, fmt.Errorf("path: %q is not a pattern such as /api/v1/*: %w", r.Path, err))
	}
	if !(r.Chance >= 0 && r.Chance <= 1) { // not a number is neither
		errs = append(errs, fmt.Errorf("chance: %v is not between 0 and 1", r.Chance))
	}
	for name, n := range map[string]int64{
		"skip": int64(r.Skip), "times": int64(r.Times), "for": int64(r.For.Duration),
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s: must not be negative", name))
		}
	}
	if r.Subresource != "" && r.Resource == "" {
		errs = append(errs, errors.New("subresource: needs a resource"))
	}
	if r.Verb != "" {
		for verb := range strings.SplitSeq(r.Verb, ",") {
			if !slices.Contains(verbs, verb) {
				message := fmt.Sprintf("verb: no request has the verb %q", verb)
				return &UnknownError{verb, verbs, message}
			}
		}
	}
	if verbs := of.Verbs(); r.Verb != "" && verbs != nil &&
		!slices.ContainsFunc(strings.Split(r.Verb, ","), func(v string) bool {
			return slices.Contains(verbs, v)
		}) {
		errs = append(errs, fmt.Errorf("verb: %s is for %s, not for %s", of,
			strings.Join(verbs, ", "), r.Verb))
	}
	return errors.Join(errs...)
}
