package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// interval is the range of indexes from first to last, both included.
type interval struct{ first, last int32 }

// indexes is a list of indexes of an indexed job, such as "1,3-5,7" in text form.
type indexes []interval

// parseIndexes parses a list of indexes below completions in ascending order. If the text is
// invalid, it returns no indexes.
func parseIndexes(text string, completions int32) (indexes, error) {
	if text == "" {
		return nil, nil
	}
	var list indexes
	for part := range strings.SplitSeq(text, ",") {
		i, err := parseInterval(part, completions)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 && list[len(list)-1].last >= i.first {
			return nil, fmt.Errorf("%q is not in ascending order", part)
		}
		list = append(list, i)
	}
	return list, nil
}

func parseInterval(text string, completions int32) (interval, error) {
	first, last, isRange := strings.Cut(text, "-")
	a, err := parseIndex(first, completions)
	if err != nil || !isRange {
		return interval{a, a}, err
	}
	b, err := parseIndex(last, completions)
	if err == nil && a >= b {
		err = fmt.Errorf("%q is not an ascending range", text)
	}
	return interval{a, b}, err
}

func parseIndex(text string, completions int32) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not an index: %w", text, err)
	}
	if n >= int64(completions) {
		return 0, fmt.Errorf("index %d must be less than the number of completions, %d", n, completions)
	}
	return int32(n), nil
}

func (list indexes) count() int32 {
	var n int32
	for _, i := range list {
		n += i.last - i.first + 1
	}
	return n
}

// readableIndexes returns the intervals in text that can be parsed.
func readableIndexes(text string, completions int32) indexes {
	var list indexes
	for part := range strings.SplitSeq(text, ",") {
		if i, err := parseInterval(part, completions); err == nil {
			list = append(list, i)
		}
	}
	return list
}

// common returns an index that is in both lists, if there is one.
func (list indexes) common(other indexes) (int32, bool) {
	for a, b := 0, 0; a < len(list) && b < len(other); {
		x, y := list[a], other[b]
		switch {
		case x.first <= y.last && y.first <= x.last:
			return max(x.first, y.first), true
		case x.first <= y.first:
			a++
		default:
			b++
		}
	}
	return 0, false
}
