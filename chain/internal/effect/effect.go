// Package effect has what the effect of a fault consists of: package fault makes effects, and
// package faults carries them out.
package effect

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Type names an effect, in JSON and on the command line.
type Type string

// The types. The functions of package fault say what they are.
const (
	Fail        Type = "fail"
	Conflict    Type = "conflict"
	TimeOut     Type = "time-out"
	LoseAnswer  Type = "lose-answer"
	Cut         Type = "cut"
	Delay       Type = "delay"
	EndWatch    Type = "end-watch"
	BreakWatch  Type = "break-watch"
	ExpireWatch Type = "expire-watch"
	HoldWatch   Type = "hold-watch"
	Freeze      Type = "freeze"
	Lag         Type = "lag"
)

// Types returns all types.
func Types() []Type {
	return []Type{
		Fail, Conflict, TimeOut, LoseAnswer, Cut, Delay, EndWatch, BreakWatch, ExpireWatch,
		HoldWatch, Freeze, Lag,
	}
}

// MaxDelay is the longest delay. Nobody waits longer for the answer to a request.
const MaxDelay = time.Hour

// Effect is what happens to the requests that a rule selects.
type Effect struct {
	Type Type `json:"type"`
	// Status is for Fail: its Code, Reason, Message and Details, of which RetryAfterSeconds is sent
	// in the header Retry-After too.
	Status *metav1.Status `json:"status,omitempty"`
	// Delay is for Delay.
	Delay metav1.Duration `json:"delay,omitzero"`
	// Revision is for Freeze. Zero stands for the present one.
	Revision int64 `json:"revision,omitempty"`
	// Revisions is for Lag.
	Revisions int64 `json:"revisions,omitempty"`
}

// Verbs returns the verbs that a type is for, or nil if it is for all.
func (t Type) Verbs() []string {
	switch t {
	case Conflict:
		return []string{"update", "patch", "delete"}
	case EndWatch, BreakWatch, ExpireWatch, HoldWatch:
		return []string{"watch"}
	case Freeze, Lag:
		return []string{"get", "list", "watch"}
	}
	return nil
}

// Validate returns an error for an effect that makes no sense.
func (e *Effect) Validate() error {
	if e.Status != nil && e.Type != Fail {
		return errors.New("a reason, message or retry-after is for fail only")
	}
	switch e.Type {
	case Conflict, TimeOut, LoseAnswer, Cut, EndWatch, BreakWatch, ExpireWatch, HoldWatch:
	case Fail:
		if e.Status == nil || e.Status.Code < http.StatusBadRequest || e.Status.Code > 599 {
			return errors.New("fail: needs a code from 400 to 599")
		}
		if d := e.Status.Details; d != nil && d.RetryAfterSeconds < 0 {
			return errors.New("retry-after: must not be negative")
		}
	case Delay:
		if e.Delay.Duration <= 0 {
			return errors.New("delay: must be positive")
		}
		if e.Delay.Duration > MaxDelay {
			return fmt.Errorf("delay: must be at most %s, and is %s", MaxDelay, e.Delay.Duration)
		}
	case Freeze:
		if e.Revision < 0 {
			return errors.New("freeze: a revision must not be negative")
		}
	case Lag:
		if e.Revisions <= 0 {
			return errors.New("lag: needs a positive number of revisions")
		}
	default:
		return fmt.Errorf("%q is not an effect", e.Type)
	}
	return nil
}

// reasons are the reasons of codes, as the API server gives them.
var reasons = map[int32]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusNotFound:              metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusConflict:              metav1.StatusReasonConflict,
	http.StatusGone:                  metav1.StatusReasonExpired,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnprocessableEntity:   metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError:   metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}

// Answer returns the status that Fail answers with, whose reason and message follow from the code
// unless they are given.
func (e *Effect) Answer() *metav1.Status {
	status := e.Status.DeepCopy()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Status = metav1.StatusFailure
	if status.Reason == "" {
		status.Reason = reasons[status.Code]
	}
	if status.Message == "" {
		status.Message = "fault: " + strings.ToLower(http.StatusText(int(status.Code)))
	}
	return status
}
