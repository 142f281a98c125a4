package fault

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Parse returns the fault that some words describe: one for each field of the rule, as in
// "verb=update", and one for the action, such as "conflict", "status=503" or "delay=2s". The words
// "retry-after=3", "reason=…" and "message=…" add to a status.
func Parse(words []string) (f Fault, err error) {
	for _, word := range words {
		key, value, given := strings.Cut(word, "=")
		known, err := f.Rule.set(key, value, given)
		if !known && err == nil {
			known, err = f.Effect.set(key, value, given)
		}
		switch {
		case err != nil:
			return f, fmt.Errorf("%s: %w", word, err)
		case !known:
			return f, fmt.Errorf("%s: %q is neither a field of a rule nor an action", word, key)
		}
	}
	if f.Effect.Action == "" {
		return f, errors.New("an action is missing, such as conflict, status=503, cut or delay=2s")
	}
	return f, f.Validate()
}

// texts returns the fields that are texts, by their words.
func (r *Rule) texts() map[string]*string {
	return map[string]*string{
		"user": &r.User, "user-agent": &r.UserAgent, "verb": &r.Verb, "resource": &r.Resource,
		"subresource": &r.Subresource, "namespace": &r.Namespace, "name": &r.Name, "path": &r.Path,
	}
}

// set sets the field that key names, and reports whether there is one.
func (r *Rule) set(key, value string, given bool) (known bool, err error) {
	if text := r.texts()[key]; text != nil {
		if value == "" {
			return true, errors.New("a value is missing")
		}
		*text = value
		return true, nil
	}
	switch key {
	case "skip":
		r.Skip, err = strconv.Atoi(value)
		err = number(value, err)
	case "times":
		r.Times, err = strconv.Atoi(value)
		err = number(value, err)
	case "chance":
		if r.Chance, err = strconv.ParseFloat(value, 64); err != nil {
			err = fmt.Errorf("%q is not a number from 0 to 1", value)
		}
	case "seed":
		r.Seed, err = strconv.ParseUint(value, 10, 64)
		err = number(value, err)
	case "for":
		r.For, err = duration(value)
	case "optional":
		if given {
			return true, errors.New("takes no value")
		}
		r.Optional = true
	default:
		return false, nil
	}
	return true, err
}

// number says in words that a value is no number, if it is none.
func number(value string, err error) error {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is out of range", value)
	case err != nil:
		return fmt.Errorf("%q is not a whole number", value)
	}
	return nil
}

// duration parses a duration. What is longer than the longest one is none either.
func duration(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration of at most 292 years, such as 2s or 1m30s", value)
	}
	return d, nil
}

// set sets what key names, and reports whether there is such a thing.
func (e *Effect) set(key, value string, given bool) (known bool, err error) {
	switch key {
	case "retry-after", "reason", "message":
		return true, e.describe(key, value)
	}
	if e.Action != "" {
		return true, fmt.Errorf("the action is %s already", e.Action)
	}
	e.Action = Action(key)
	switch e.Action {
	case Status:
		code, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return true, number(value, err)
		}
		e.status().Code = int32(code)
		return true, nil
	case Delay:
		if e.Delay, err = duration(value); err != nil {
			err = fmt.Errorf("%q is not a duration of at most %s, such as 2s", value, MaxDelay)
		}
		return true, err
	case Behind:
		e.Revisions, err = strconv.ParseInt(value, 10, 64)
		return true, number(value, err)
	case Freeze:
		if given {
			e.Revision, err = strconv.ParseInt(value, 10, 64)
		}
		return true, number(value, err)
	}
	if (&Effect{Action: e.Action}).validate() != nil {
		return false, nil
	}
	if given {
		return true, errors.New("takes no value")
	}
	return true, nil
}

func (e *Effect) status() *metav1.Status {
	if e.Status == nil {
		e.Status = &metav1.Status{}
	}
	return e.Status
}

// describe sets a part of the status.
func (e *Effect) describe(key, value string) error {
	switch status := e.status(); key {
	case "reason":
		status.Reason = metav1.StatusReason(value)
	case "message":
		status.Message = value
	default:
		seconds, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return number(value, err)
		}
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
	}
	return nil
}

// String returns the fault in words, as [Parse] takes them.
func (f *Fault) String() string {
	r, e := &f.Rule, &f.Effect
	var words []string
	texts := r.texts()
	for _, key := range []string{
		"user", "user-agent", "verb", "resource", "subresource", "namespace", "name", "path",
	} {
		if *texts[key] != "" {
			words = append(words, key+"="+*texts[key])
		}
	}
	add := func(given bool, key string, value any) {
		if given {
			words = append(words, fmt.Sprintf("%s=%v", key, value))
		}
	}
	add(r.Skip != 0, "skip", r.Skip)
	add(r.Times != 0, "times", r.Times)
	add(r.Chance != 0, "chance", r.Chance)
	add(r.Seed != 0, "seed", r.Seed)
	add(r.For != 0, "for", r.For)
	if r.Optional {
		words = append(words, "optional")
	}
	return strings.Join(append(words, e.String()), " ")
}

// String returns the effect in words, as [Parse] takes them.
func (e *Effect) String() string {
	switch {
	case e.Action == Delay:
		return fmt.Sprintf("%s=%s", e.Action, e.Delay)
	case e.Action == Behind:
		return fmt.Sprintf("%s=%d", e.Action, e.Revisions)
	case e.Action == Freeze && e.Revision != 0:
		return fmt.Sprintf("%s=%d", e.Action, e.Revision)
	case e.Action != Status || e.Status == nil:
		return string(e.Action)
	}
	words := fmt.Sprintf("%s=%d", e.Action, e.Status.Code)
	if e.Status.Reason != "" {
		words += fmt.Sprintf(" reason=%s", e.Status.Reason)
	}
	if e.Status.Message != "" {
		words += fmt.Sprintf(" message=%s", e.Status.Message)
	}
	if d := e.Status.Details; d != nil && d.RetryAfterSeconds != 0 {
		words += fmt.Sprintf(" retry-after=%d", d.RetryAfterSeconds)
	}
	return words
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

// Answer returns the status that the server answers with, whose reason and message follow from the
// code unless they are given.
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
