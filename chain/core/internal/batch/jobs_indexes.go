package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// interval is the indexes from first to last.
type interval struct{ first, last int32 }

// indexes are the indexes of an indexed job that a text such as "1,3-5,7" lists.
type indexes []interval

// parseIndexes reads a list of indexes below completions, in ascending order. Of a text that is wrong it returns nothing.
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
			return nil, fmt.Errorf("%q is not after what comes before it", part)
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
		err = fmt.Errorf("%q does not ascend", text)
	}
	return interval{a, b}, err
}

func parseIndex(text string, completions int32) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no index: %w", text, err)
	}
	if n >= int64(completions) {
		return 0, fmt.Errorf("index %d is not below the number of completions, %d", n, completions)
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

// readableIndexes are the intervals of text that can be read.
func readableIndexes(text string, completions int32) indexes {
	var list indexes
	for part := range strings.SplitSeq(text, ",") {
		if i, err := parseInterval(part, completions); err == nil {
			list = append(list, i)
		}
	}
	return list
}

// common returns an index that both lists have.
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
