package podlifecycle

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxResponderPriority = 100_000
	maxResponderMessage  = 4000
	// heartbeatDeadline is how long a responder may go without a heartbeat before the next one may
	// become active.
	heartbeatDeadline = 20 * time.Minute
	// skew is the accepted difference between the server's clock and a time that must be now.
	skew = 30 * time.Second
	// maxCompletion is how far ahead a responder's expected completion time may be.
	maxCompletion = 10 * 365 * 24 * time.Hour
)

type (
	turn   = lifecyclev1alpha1.TargetResponder
	report = lifecyclev1alpha1.ResponderStatus
	state  = lifecyclev1alpha1.ResponderStateType
)

// validateTurns checks that the responders take turns in the order of the list: each becomes active
// after the previous one has ended. The names in the list and their order are immutable once set.
func validateTurns(
	s, old *lifecyclev1alpha1.EvictionStatus, at *field.Path, ended bool, now time.Time,
) field.ErrorList {
	list, before := s.TargetResponders, old.TargetResponders
	if len(before) > 0 &&
		!slices.EqualFunc(list, before, func(a, b turn) bool { return a.Name == b.Name }) {
		return field.ErrorList{
			field.Invalid(at, field.OmitValueType{}, "the names and their order are immutable"),
		}
	}
	if len(list) > maxResponders {
		return field.ErrorList{field.TooMany(at, len(list), maxResponders)}
	}
	if errs := duplicates(list, at, func(t turn) string { return t.Name }); len(errs) > 0 {
		return errs
	}
	last := active(before)
	var errs field.ErrorList
	for i, t := range list {
		at := at.Index(i)
		var was *turn
		if i < len(before) {
			was = &before[i]
		}
		errs = append(errs, validateTurn(&t, was, at)...)
		if i >= len(s.Responders) || s.Responders[i].Name != t.Name {
			errs = append(errs, field.Invalid(at, t.Name, "must have an entry in status.responders"))
			continue
		}
		passes := last >= 0 && list[last].State != lifecyclev1alpha1.ResponderStateActive
		expected := expectedStates(i, last, before, passes, ended)
		if !slices.Contains(expected, t.State) {
			errs = append(errs, field.Invalid(at.Child("state"), t.State,
				fmt.Sprintf("must be one of %q in this state of the eviction", expected)))
		}
		if !slices.Contains(expected, lifecyclev1alpha1.ResponderStateActive) && !ended &&
			alive(&s.Responders[i], now) {
			errs = append(errs, field.Forbidden(at.Child("state"),
				"the responder is still at work: its last heartbeat is recent"))
		}
	}
	return errs
}

// validateTurn checks one responder separately.
func validateTurn(t, was *turn, at *field.Path) field.ErrorList {
	if was != nil && equality.Semantic.DeepEqual(t, was) {
		return nil
	}
	errs := validateParticipant(t.Name, at.Child("name"))
	priority := at.Child("priority")
	switch p := t.Priority; {
	case p == nil:
		errs = append(errs, field.Required(priority, ""))
		if was != nil && was.Priority != nil {
			errs = append(errs, field.Invalid(priority, field.OmitValueType{}, "is immutable"))
		}
	case was != nil && was.Priority != nil:
		if *p != *was.Priority {
			errs = append(errs, field.Invalid(priority, *p, "is immutable"))
		}
	case *p < 0 || *p > maxResponderPriority:
		errs = append(errs, field.Invalid(priority, *p,
			fmt.Sprintf("must be between 0 and %d", maxResponderPriority)))
	}
	return append(errs, oneOf(t.State, at.Child("state"),
		lifecyclev1alpha1.ResponderStateInactive, lifecyclev1alpha1.ResponderStateActive,
		lifecyclev1alpha1.ResponderStateInterrupted, lifecyclev1alpha1.ResponderStateCanceled,
		lifecyclev1alpha1.ResponderStateCompleted)...)
}

// expectedStates returns the states that responder i may be in. last is the index of the responder
// that was active before the update, or -1; passes reports whether that responder is no longer
// active.
func expectedStates(i, last int, before []turn, passes, ended bool) []state {
	final := []state{
		lifecyclev1alpha1.ResponderStateInterrupted, lifecyclev1alpha1.ResponderStateCanceled,
		lifecyclev1alpha1.ResponderStateCompleted,
	}
	switch {
	case i < last, len(before) > 0 && last < 0 && ended:
		return []state{before[i].State}
	case i == last && (passes || ended):
		return final
	case i == last:
		return []state{lifecyclev1alpha1.ResponderStateActive}
	case (i == 0 && len(before) == 0 || i == last+1 && passes) && !ended:
		return []state{lifecyclev1alpha1.ResponderStateActive}
	}
	return []state{lifecyclev1alpha1.ResponderStateInactive}
}

// alive reports whether a responder has started, has not completed, and sent a heartbeat recently.
func alive(r *report, now time.Time) bool {
	if r.StartTime == nil || r.CompletionTime != nil {
		return false
	}
	heard := r.StartTime
	if r.HeartbeatTime != nil {
		heard = r.HeartbeatTime
	}
	return now.Before(heard.Add(heartbeatDeadline - skew))
}

// validateResponders requires a report for each responder. Only the active responder may change its
// report.
func validateResponders(
	s, old *lifecyclev1alpha1.EvictionStatus, at *field.Path, now time.Time,
) field.ErrorList {
	if !slices.EqualFunc(s.TargetResponders, s.Responders,
		func(t turn, r report) bool { return t.Name == r.Name }) {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{},
			"must have the same names as targetResponders, in the same order")}
	}
	if len(s.Responders) > maxResponders {
		return field.ErrorList{field.TooMany(at, len(s.Responders), maxResponders)}
	}
	if errs := duplicates(s.Responders, at, func(r report) string { return r.Name }); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range s.Responders {
		r, at := &s.Responders[i], at.Index(i)
		was := &report{}
		if i < len(old.Responders) {
			was = &old.Responders[i]
			if s.TargetResponders[i].State != lifecyclev1alpha1.ResponderStateActive &&
				!equality.Semantic.DeepEqual(r, was) {
				errs = append(errs, field.Invalid(at, r.Name,
					"only the active responder may change its report"))
				continue
			}
		} else {
			errs = append(errs, validateParticipant(r.Name, at.Child("name"))...)
		}
		errs = append(errs, validateReport(r, was, s.TargetResponders[i].State, at, now)...)
	}
	return errs
}

func validateReport(r, was *report, state state, at *field.Path, now time.Time) field.ErrorList {
	var errs field.ErrorList
	invalid := func(name, why string) {
		errs = append(errs, field.Invalid(at.Child(name), field.OmitValueType{}, why))
	}
	present := func(t *metav1.Time) bool { return now.Sub(t.Time).Abs() < skew }

	switch {
	case was.StartTime != nil && !was.StartTime.Equal(r.StartTime):
		invalid("startTime", "is immutable")
	case r.StartTime == nil && state == lifecyclev1alpha1.ResponderStateActive:
		errs = append(errs, field.Required(at.Child("startTime"), "required for an active responder"))
	case r.StartTime != nil && was.StartTime == nil && !present(r.StartTime):
		invalid("startTime", "must be now")
	}

	switch {
	case r.HeartbeatTime == nil && was.HeartbeatTime != nil:
		errs = append(errs, field.Required(at.Child("heartbeatTime"),
			"may not be removed once it is set"))
	case r.HeartbeatTime == nil || r.HeartbeatTime.Equal(was.HeartbeatTime):
	case r.StartTime == nil || r.HeartbeatTime.Before(r.StartTime):
		invalid("heartbeatTime", "must not be before startTime")
	case r.HeartbeatTime.Before(was.HeartbeatTime):
		invalid("heartbeatTime", "must not go back")
	case !present(r.HeartbeatTime):
		invalid("heartbeatTime", "must be now")
	}

	switch t := r.ExpectedCompletionTime; {
	case t == nil || t.Equal(was.ExpectedCompletionTime):
	case r.StartTime == nil || t.Before(r.StartTime):
		invalid("expectedCompletionTime", "must not be before startTime")
	case t.Time.Before(now.Add(-skew)):
		invalid("expectedCompletionTime", "must not be in the past")
	case t.After(now.Add(maxCompletion)):
		invalid("expectedCompletionTime", "must be within ten years")
	}

	switch t := r.CompletionTime; {
	case was.CompletionTime != nil && !was.CompletionTime.Equal(t):
		invalid("completionTime", "is immutable")
	case t == nil:
	case r.StartTime == nil || t.Before(r.StartTime):
		invalid("completionTime", "must not be before startTime")
	case was.CompletionTime == nil && !present(t):
		invalid("completionTime", "must be now")
	}
	if m := r.Message; m != nil && utf8.RuneCountInString(*m) > maxResponderMessage {
		errs = append(errs, field.TooLong(at.Child("message"),
			"" /* not the text */, maxResponderMessage))
	}
	return errs
}
