package loop

import (
	"math"
	"time"
)

// Seconds returns the duration of a number of seconds, or the longest one if that is too long.
func Seconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	return time.Duration(max(-most, min(n, most))) * time.Second
}
