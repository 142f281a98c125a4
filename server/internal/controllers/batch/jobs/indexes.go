package jobs

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// indexes is a set of completion indexes: intervals in order, with a gap between two of them. It
// takes as much memory as its text in the status of a Job, such as "1,3-5", however many indexes
// that stands for.
type indexes []interval

// interval has both of its ends.
type interval struct{ first, last int }

func (v interval) count() int { return v.last - v.first + 1 }

// parseIndexes ignores what is not below end, because a Job can become smaller.
func parseIndexes(text string, end int) indexes {
	var list indexes
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		list = append(list, interval{first, min(last, end-1)})
	}
	return list.normal()
}

// normal returns the set for intervals in any order. It reuses s.
func (s indexes) normal() indexes {
	s = slices.DeleteFunc(s, func(v interval) bool { return v.last < v.first })
	slices.SortFunc(s, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	merged := s[:0]
	for _, v := range s {
		if n := len(merged); n > 0 && v.first <= merged[n-1].last+1 {
			merged[n-1].last = max(merged[n-1].last, v.last)
		} else {
			merged = append(merged, v)
		}
	}
	return merged
}

// with returns the set with further indexes.
func (s indexes) with(list []int) indexes {
	all := slices.Clone(s)
	for _, i := range list {
		all = append(all, interval{i, i})
	}
	return all.normal()
}

func (s indexes) has(i int) bool {
	_, found := slices.BinarySearchFunc(s, i, func(v interval, i int) int {
		switch {
		case v.last < i:
			return -1
		case v.first > i:
			return 1
		}
		return 0
	})
	return found
}

func (s indexes) count() int {
	var n int
	for _, v := range s {
		n += v.count()
	}
	return n
}

// shared returns how many indexes two sets have in common.
func (s indexes) shared(other indexes) int {
	var n int
	for len(s) > 0 && len(other) > 0 {
		a, b := s[0], other[0]
		n += max(0, interval{max(a.first, b.first), min(a.last, b.last)}.count())
		if a.last < b.last {
			s = s[1:]
		} else {
			other = other[1:]
		}
	}
	return n
}

// lacking yields the indexes that are not in the set, in order and without end.
func (s indexes) lacking(yield func(int) bool) {
	next := 0
	for _, v := range append(slices.Clone(s), interval{first: math.MaxInt}) {
		for ; next < v.first; next++ {
			if !yield(next) {
				return
			}
		}
		next = v.last + 1
	}
}

func (s indexes) String() string {
	var parts []string
	for _, v := range s {
		parts = append(parts, strconv.Itoa(v.first))
		switch v.count() {
		case 1:
		case 2:
			parts = append(parts, strconv.Itoa(v.last))
		default:
			parts[len(parts)-1] += "-" + strconv.Itoa(v.last)
		}
	}
	return strings.Join(parts, ",")
}

// indexOf returns the completion index of a pod, or -1 if it has none.
func indexOf(pod *corev1.Pod) int {
	i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return -1
	}
	return i
}

// successPolicy returns the number of the first rule of the success policy that is met, or -1. A
// rule about indexes that the Job no longer has, because it has become smaller, is never met.
func successPolicy(job *batchv1.Job, succeeded indexes) int {
	if job.Spec.SuccessPolicy == nil || len(succeeded) == 0 {
		return -1
	}
	for n, rule := range job.Spec.SuccessPolicy.Rules {
		met, all := succeeded.count(), -1
		if rule.SucceededIndexes != nil {
			required := parseIndexes(*rule.SucceededIndexes, int(*job.Spec.Completions))
			if len(required) == 0 {
				continue
			}
			met, all = required.shared(succeeded), required.count()
		}
		if met == all || rule.SucceededCount != nil && met >= int(*rule.SucceededCount) {
			return n
		}
	}
	return -1
}
