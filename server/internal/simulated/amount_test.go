package simulated

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

func TestAmount(t *testing.T) {
	t.Parallel()
	midnight := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text      string
		after     time.Duration
		requested int64
		want      int64
	}{
		{"250m", 0, 0, 250},
		{"64Mi", 0, 0, 64 << 20 * 1000},
		{"80%", 0, 500, 400},
		{"80%", 0, 0, 0},
		{"100m..300m every 1m", 0, 0, 100},
		{"100m..300m every 1m", 15 * time.Second, 0, 200},
		{"100m..300m every 1m", 30 * time.Second, 0, 300},
		{"100m..300m every 1m", time.Minute, 0, 100},
		{"10%..90% every 2h", time.Hour, 1000, 900},
		{"300m..100m every 1m", 30 * time.Second, 0, 100},
		{"9999999999999999999", 0, 0, maxMilli},
	} {
		a, err := ParseAmount(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := a.At(midnight.Add(c.after), c.requested); got != c.want {
			t.Errorf("%s after %s is %d, want %d", c.text, c.after, got, c.want)
		}
	}
	for _, text := range []string{
		"", "x", "-1", "-5%", "NaN%", "Inf%", "99999%", "1..2", "1 every 1m", "1..2 every 1ms",
		"1..2 every 25h", "1..2 every x", "..", "1..2..3 every 1m",
	} {
		if a, err := ParseAmount(text); err == nil {
			t.Errorf("%q is an amount: %+v", text, a)
		}
	}
}

func TestSeries(t *testing.T) {
	t.Parallel()
	series, err := ParseSeries("40 queue=mail,region=eu\n\n1..5 every 1m\n")
	if err != nil || len(series) != 2 || series[0].Labels["region"] != "eu" ||
		series[0].Amount.At(time.Now(), 0) != 40_000 || series[1].Labels != nil {
		t.Errorf("the series are %+v, %v", series, err)
	}
	if !labels.Everything().Matches(series[1].Labels) {
		t.Error("a series without labels does not match everything")
	}
	var long string
	for range maxSeries + 1 {
		long += "1\n"
	}
	for _, text := range []string{long, "x queue=mail", "1 queue=mail,=", "1 queue==x=y"} {
		if _, err := ParseSeries(text); err == nil {
			t.Errorf("%.40q is a metric", text)
		}
	}
}
