package fault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/chain/internal/effect"
)

// Effect is what happens to the requests that a rule selects. [Fail], [Conflict] and the like make
// effects. Each has the same name in Go, in JSON, as its type, and on the command line: LoseAnswer
// is "lose-answer". An effect that is for some verbs hits no other requests.
type Effect struct{ effect effect.Effect }

// MaxDelay is the longest delay. Nobody waits longer for the answer to a request.
const MaxDelay = effect.MaxDelay

// Fail answers with an error before the request has any effect, such as
// [apierrors.NewTooManyRequests]. The error's RetryAfterSeconds become the header Retry-After.
func Fail(err apierrors.APIStatus) Effect {
	status := err.Status()
	return Effect{effect.Effect{Type: effect.Fail, Status: &status}}
}

// Conflict answers 409, as if the object had changed since the client read it. It is for update,
// patch and delete.
func Conflict() Effect { return Effect{effect.Effect{Type: effect.Conflict}} }

// TimeOut answers 504 at once, as if the request had not been done in time. It has no effect.
func TimeOut() Effect { return Effect{effect.Effect{Type: effect.TimeOut}} }

// LoseAnswer carries out the request, and then ends the connection instead of answering.
func LoseAnswer() Effect { return Effect{effect.Effect{Type: effect.LoseAnswer}} }

// Cut ends the connection before the request has any effect. With a rule that selects everything,
// it is an outage, which ends the running watches too. Over HTTP/2, only the request's stream is
// reset; clients in this process get "connection reset by peer".
func Cut() Effect { return Effect{effect.Effect{Type: effect.Cut}} }

// Delay lets the request wait first, for [MaxDelay] at most.
func Delay(by time.Duration) Effect {
	return Effect{effect.Effect{Type: effect.Delay, Delay: metav1.Duration{Duration: by}}}
}

// EndWatch ends a watch as its timeout would. It is for watch, and like the following three, it
// hits the watches that are running, too.
func EndWatch() Effect { return Effect{effect.Effect{Type: effect.EndWatch}} }

// BreakWatch ends a watch in the middle of its response.
func BreakWatch() Effect { return Effect{effect.Effect{Type: effect.BreakWatch}} }

// ExpireWatch ends a watch with 410, as if its resource version had been compacted, so that the
// client has to list again.
func ExpireWatch() Effect { return Effect{effect.Effect{Type: effect.ExpireWatch}} }

// HoldWatch keeps back the events of a watch until the fault is removed.
func HoldWatch() Effect { return Effect{effect.Effect{Type: effect.HoldWatch}} }

// Freeze lets reads see the present state until the fault is removed, whatever is written. It is
// for get, list and watch. Watches that are running keep back later events. Extension API servers
// do not notice.
func Freeze() Effect { return FreezeAt(0) }

// FreezeAt is like [Freeze], with the state of a revision.
func FreezeAt(revision int64) Effect {
	return Effect{effect.Effect{Type: effect.Freeze, Revision: revision}}
}

// Lag lets reads see the state as it was so many revisions ago; each change of any object is a
// revision. It is for get, list and watch. Watches that are running end. Extension API servers do
// not notice.
func Lag(revisions int64) Effect {
	return Effect{effect.Effect{Type: effect.Lag, Revisions: revisions}}
}

// Internal is for the server, which carries out what Internal returns.
func (e Effect) Internal() effect.Effect { return e.effect }

// MarshalJSON implements [json.Marshaler].
func (e Effect) MarshalJSON() ([]byte, error) { return json.Marshal(e.effect) }

// UnmarshalJSON implements [json.Unmarshaler]. Fields that are not known are an error.
func (e *Effect) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(&e.effect)
}

// String returns the effect in words, as [Parse] takes them.
func (e Effect) String() string {
	i := &e.effect
	switch {
	case i.Type == effect.Delay:
		return fmt.Sprintf("%s=%s", i.Type, i.Delay.Duration)
	case i.Type == effect.Lag:
		return fmt.Sprintf("%s=%d", i.Type, i.Revisions)
	case i.Type == effect.Freeze && i.Revision != 0:
		return fmt.Sprintf("%s=%d", i.Type, i.Revision)
	case i.Type != effect.Fail || i.Status == nil:
		return string(i.Type)
	}
	words := fmt.Sprintf("%s=%d", i.Type, i.Status.Code)
	if i.Status.Reason != "" {
		words += fmt.Sprintf(" reason=%s", i.Status.Reason)
	}
	if i.Status.Message != "" {
		words += fmt.Sprintf(" message=%s", i.Status.Message)
	}
	if d := i.Status.Details; d != nil && d.RetryAfterSeconds != 0 {
		words += fmt.Sprintf(" retry-after=%d", d.RetryAfterSeconds)
	}
	return words
}
