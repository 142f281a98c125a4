package cli

import (
	"testing"
	"time"
)

func TestParseMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 30, 15, 500, time.UTC)
	end := time.Second - 1 // of a second
	for text, want := range map[string]moment{
		"1":                           {revision: 1},
		"9223372036854775807":         {revision: 1<<63 - 1},
		"-5m":                         {time: now.Add(-5 * time.Minute)},
		"5m":                          {time: now.Add(-5 * time.Minute)},
		"0s":                          {time: now},
		"12:30:15":                    {time: now.Truncate(time.Second).Add(end)},
		"12:30":                       {time: now.Truncate(time.Minute).Add(end)},
		"12:30:15.0":                  {time: now.Truncate(time.Second)},
		"12:30:16":                    {time: now.Truncate(time.Second).Add(-24*time.Hour + time.Second + end)},
		"2026-02-28T23:59:59":         {time: time.Date(2026, 2, 28, 23, 59, 59, 999_999_999, time.UTC)},
		"2026-02-28 23:59:59":         {time: time.Date(2026, 2, 28, 23, 59, 59, 999_999_999, time.UTC)},
		"2026-03-01T13:00:00.5+02:00": {time: time.Date(2026, 3, 1, 11, 0, 0, 500_000_000, time.UTC)},
	} {
		got, err := parseMoment(text, now)
		if err != nil || got.revision != want.revision || !got.time.Equal(want.time) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "0", "-1", "+5", "--5m", "-", "yesterday", "25:00", "12:30:15:1", "2026-13-01T00:00:00",
		"2026-03-01T12:30:16", "9223372036854775808", "2026-03-02T00:00:00Z",
	} {
		if got, err := parseMoment(text, now); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}
