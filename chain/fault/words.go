package fault

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/chain/internal/effect"
)

// Parse returns the fault that some words describe: one for each field of the rule, as in
// "verb=update", and one for the effect, such as "conflict", "fail=503" or "delay=2s". The words
// "retry-after=3", "reason=…" and "message=…" add to a failure.
func Parse(words []string) (s Spec, err error) {
	for _, word := range words {
		key, value, given := strings.Cut(word, "=")
		known, err := s.Rule.set(key, value, given)
		if !known && err == nil {
			known, err = set(&s.Effect.effect, key, value, given)
		}
		switch {
		case err != nil:
			return s, fmt.Errorf("%s: %w", word, err)
		case !known:
			message := fmt.Sprintf("%s: %q is neither a field of a rule nor an effect", word, key)
			return s, &UnknownError{key, allWords(), message}
		}
	}
	if s.Effect.effect.Type == "" {
		return s, errors.New("an effect is missing, such as conflict, fail=503, cut or delay=2s")
	}
	return s, s.Validate()
}

// allWords returns the words of a fault, without their values.
func allWords() []string {
	words := []string{
		"skip", "times", "chance", "seed", "for", "optional", "retry-after", "reason", "message",
	}
	words = slices.AppendSeq(words, maps.Keys(new(Rule).texts()))
	for _, t := range effect.Types() {
		words = append(words, string(t))
	}
	slices.Sort(words)
	return words
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
		r.For.Duration, err = duration(value)
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
func set(e *effect.Effect, key, value string, given bool) (known bool, err error) {
	switch key {
	case "retry-after", "reason", "message":
		return true, describe(statusOf(e), key, value)
	}
	if e.Type != "" {
		return true, fmt.Errorf("the effect is %s already", e.Type)
	}
	e.Type = effect.Type(key)
	switch e.Type {
	case effect.Fail:
		code, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return true, number(value, err)
		}
		statusOf(e).Code = int32(code)
		return true, nil
	case effect.Delay:
		if e.Delay.Duration, err = duration(value); err != nil {
			err = fmt.Errorf("%q is not a duration of at most %s, such as 2s", value, MaxDelay)
		}
		return true, err
	case effect.Lag:
		e.Revisions, err = strconv.ParseInt(value, 10, 64)
		return true, number(value, err)
	case effect.Freeze:
		if given {
			e.Revision, err = strconv.ParseInt(value, 10, 64)
		}
		return true, number(value, err)
	}
	if (&effect.Effect{Type: e.Type}).Validate() != nil {
		return false, nil
	}
	if given {
		return true, errors.New("takes no value")
	}
	return true, nil
}

func statusOf(e *effect.Effect) *metav1.Status {
	if e.Status == nil {
		e.Status = &metav1.Status{}
	}
	return e.Status
}

// describe sets a part of the status.
func describe(status *metav1.Status, key, value string) error {
	switch key {
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
func (s *Spec) String() string {
	r := &s.Rule
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
	add(r.For.Duration != 0, "for", r.For.Duration)
	if r.Optional {
		words = append(words, "optional")
	}
	return strings.Join(append(words, s.Effect.String()), " ")
}
