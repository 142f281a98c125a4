package explorer

import (
	"context"

	"github.com/kinproc/kinproc/server/internal/disturb"
)

// minimise finds out what a finding needs: it leaves out one part after the other, from the last to
// the first and then from the first to the last, as long as there is the same finding.
func (e *Exploration) minimise(ctx context.Context, found *disturb.Finding) error {
	out := make([]bool, len(e.Parts))
	leave := func(i int) (bool, error) {
		// The write that is disturbed is in its act.
		if out[i] || e.Parts[i].Act > 0 && e.Parts[i].Act == found.Disturbance.At.Act {
			return false, nil
		}
		if e.overBudget() {
			return false, nil
		}
		out[i] = true
		same, err := e.findsWithout(ctx, out, found)
		out[i] = same
		return same, err
	}
	some := false
	for i := len(e.Parts) - 1; i >= 0; i-- {
		left, err := leave(i)
		if err != nil {
			return err
		}
		some = some || left
	}
	for i := 0; some && i < len(e.Parts); i++ {
		if _, err := leave(i); err != nil {
			return err
		}
	}
	for i, part := range e.Parts {
		if some && !out[i] {
			found.Needs = append(found.Needs, part.Name)
		}
	}
	return nil
}

// findsWithout reports whether there is the same finding without some parts. A part without which
// the case does not work is needed, so only an interrupt is an error.
func (e *Exploration) findsWithout(
	ctx context.Context, out []bool, found *disturb.Finding,
) (bool, error) {
	try, err := e.Without(ctx, out)
	if err != nil {
		return false, context.Cause(ctx)
	}
	baseline, err := undisturbed(ctx, try)
	if err != nil {
		return false, context.Cause(ctx)
	}
	outcome, err := try(ctx, disturb.NewSession(found.Disturbance), baseline)
	if err != nil {
		return false, context.Cause(ctx)
	}
	other := baseline.Judge(found.Disturbance, outcome)
	return other != nil && other.SameAs(found), nil
}
