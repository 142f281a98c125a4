package cronjobs

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
)

// TestFollowing has looks at a CronJob between its times, which do not put off the next one.
func TestFollowing(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		schedule    string
		after, want time.Duration
	}{
		{"@every 1h", 0, time.Hour},
		{"@every 1h", 40*time.Minute + time.Nanosecond, time.Hour},
		{"@every 1h", time.Hour, 2 * time.Hour},
		{"@every 1h", 1000*time.Hour + time.Minute, 1001 * time.Hour},
		{"0 * * * *", 40 * time.Minute, time.Hour},
	} {
		schedule, err := cron.ParseStandard(c.schedule)
		if err != nil {
			t.Fatal(err)
		}
		if got := following(schedule, began, began.Add(c.after)).Sub(began); got != c.want {
			t.Errorf("%s after %v: next at %v, want %v", c.schedule, c.after, got, c.want)
		}
	}
}

// TestResumed has a CronJob whose last time is hours from now.
func TestResumed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"* * * * *": now, "@every 1h": now, "0 12 * * *": now, "30 12 * * *": {},
	} {
		schedule, err := cron.ParseStandard(text)
		if err != nil {
			t.Fatal(err)
		}
		due, _ := latest(schedule, resumed(schedule, now.Add(3*time.Hour), now), now)
		if !due.Equal(want) {
			t.Errorf("%s: due at %v, want %v", text, due, want)
		}
	}
}
