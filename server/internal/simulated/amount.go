package simulated

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// An Amount is how much there is of something that is measured. In an annotation it is a level,
// such as 250m or 80% of what is requested, or a wave between two levels: 100m..900m every 5m.
type Amount struct {
	low, high level
	period    time.Duration // 0 unless the amount is a wave
}

// level is an absolute amount in thousandths, or a part of what is requested.
type level struct {
	milli    float64
	relative bool // milli is a part of what is requested, 1 for all of it
}

// Limits of what an annotation can say. The sum over all pods of a control plane still fits into
// the numbers in which clients add amounts up.
const (
	maxMilli            = 4e15 // 4 TB in thousandths of a byte
	maxPercent          = 10000
	minPeriod           = time.Second
	maxPeriod           = 24 * time.Hour
	rangeSign, everySep = "..", " every "
)

// ParseAmount parses an amount.
func ParseAmount(text string) (Amount, error) {
	levels, every, isWave := strings.Cut(strings.TrimSpace(text), everySep)
	low, high, isRange := strings.Cut(levels, rangeSign)
	if isWave != isRange {
		return Amount{}, fmt.Errorf("%q: a wave has two levels and a period, as in 100m..900m every 5m",
			text)
	}
	var a Amount
	var err error
	if a.low, err = parseLevel(low); err != nil {
		return Amount{}, err
	}
	a.high = a.low
	if !isWave {
		return a, nil
	}
	if a.high, err = parseLevel(high); err != nil {
		return Amount{}, err
	}
	a.period, err = time.ParseDuration(strings.TrimSpace(every))
	if err != nil || a.period < minPeriod || a.period > maxPeriod {
		return Amount{}, fmt.Errorf("%q: the period must be a duration from %s to %s", text, minPeriod,
			maxPeriod)
	}
	return a, nil
}

func parseLevel(text string) (level, error) {
	text = strings.TrimSpace(text)
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(p >= 0 && p <= maxPercent) {
			return level{}, fmt.Errorf("%q is not a percentage from 0%% to %d%%", text, maxPercent)
		}
		return level{milli: p / 100, relative: true}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return level{}, fmt.Errorf("%q is not an amount such as 250m, 64Mi or 80%%", text)
	}
	return level{milli: q.AsApproximateFloat64() * 1000}, nil
}

// At returns the amount at a time, in thousandths. Requested, in thousandths too, is what a
// percentage refers to. Waves have the same phase in all pods, and are low at midnight UTC if the
// period is a part of a day.
func (a Amount) At(now time.Time, requested int64) int64 {
	low, high := a.low.of(requested), a.high.of(requested)
	if a.period > 0 {
		phase := float64(now.UnixNano()%int64(a.period)) / float64(a.period)
		low += (high - low) * (1 - math.Cos(2*math.Pi*phase)) / 2
	}
	return int64(math.Round(max(0, min(low, maxMilli))))
}

func (l level) of(requested int64) float64 {
	if l.relative {
		return l.milli * float64(requested)
	}
	return l.milli
}
