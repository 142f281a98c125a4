package loop

import "time"

// skew is how far the clock of another machine may be ahead of ours.
const skew = time.Minute

// Ahead reports whether a time that an object says is so far in the future that the clock has been
// set back since. It may be hours until that time.
func Ahead(says, now time.Time) bool { return says.After(now.Add(skew)) }

// Left returns how much is left of a period that began when an object says. Nothing is left of one
// that begins in the future: nobody is to wait until the clock is there again.
func Left(began time.Time, period time.Duration, now time.Time) time.Duration {
	if Ahead(began, now) {
		return 0
	}
	return began.Add(period).Sub(now)
}

// Seen returns when something happened that an object says, now at the latest. If now is from
// [time.Now], later changes of the clock do not matter.
func Seen(says, now time.Time) time.Time { return now.Add(min(0, says.Sub(now))) }
