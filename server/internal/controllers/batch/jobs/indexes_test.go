package jobs

import (
	"math"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
)

func TestIndexes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		end   int
		want  string
		count int
	}{
		{"", 10, "", 0},
		{"3", 10, "3", 1},
		{"1,2", 10, "1,2", 2},
		{"1-2,3", 10, "1-3", 3},
		{"7-9,2,1,0,8", 10, "0-2,7-9", 6},
		{"1,3-5", 4, "1,3", 2},
		{"5-3,x,4-y", 10, "", 0},
		{"0-2147483646", math.MaxInt32, "0-2147483646", math.MaxInt32},
		{"0-9223372036854775807,5", math.MaxInt32, "0-2147483646", math.MaxInt32},
	} {
		got := parseIndexes(test.text, test.end)
		if got.String() != test.want || got.count() != test.count {
			t.Errorf("%q below %d: got %q with %d, want %q with %d", test.text, test.end, got,
				got.count(), test.want, test.count)
		}
	}
	set := parseIndexes("2-4,8", 10)
	for i, want := range []bool{false, false, true, true, true, false, false, false, true, false} {
		if got := set.has(i); got != want {
			t.Errorf("%s has %d: %t", set, i, got)
		}
	}
	if got := set.with([]int{9, 3, 0, 5}).String(); got != "0,2-5,8,9" {
		t.Errorf("with further indexes: %s", got)
	}
	if set.String() != "2-4,8" {
		t.Errorf("the set itself has changed: %s", set)
	}
	if got := set.shared(parseIndexes("0-2,4,6-20", 21)); got != 3 {
		t.Errorf("shared with another set: %d, want 3", got)
	}
	var free []int
	for i := range set.lacking {
		if free = append(free, i); len(free) == 6 {
			break
		}
	}
	if !slices.Equal(free, []int{0, 1, 5, 6, 7, 9}) {
		t.Errorf("lacking: %v", free)
	}
}

// TestSuccessPolicy has rules about more indexes than fit into the memory.
func TestSuccessPolicy(t *testing.T) {
	t.Parallel()
	const all = "0-2147483646"
	rule := func(indexes string, count int32) batchv1.SuccessPolicyRule {
		return batchv1.SuccessPolicyRule{SucceededIndexes: &indexes, SucceededCount: &count}
	}
	job := &batchv1.Job{Spec: batchv1.JobSpec{
		Completions: new(int32(math.MaxInt32)),
		SuccessPolicy: &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
			{SucceededIndexes: new(all)},
			rule(all, 3),
			rule("5-2147483646", 2),
		}},
	}}
	for text, want := range map[string]int{"0,1": -1, "0,2,4": 1, "0,7,9": 1, "7,9": 2, all: 0} {
		if got := successPolicy(job, parseIndexes(text, math.MaxInt32)); got != want {
			t.Errorf("with %s: rule %d is met, want %d", text, got, want)
		}
	}
}

// TestSuccessPolicyOfSmallerJob has rules about indexes that the Job had before it became smaller.
func TestSuccessPolicyOfSmallerJob(t *testing.T) {
	t.Parallel()
	rule := func(indexes string, count *int32) batchv1.SuccessPolicyRule {
		return batchv1.SuccessPolicyRule{SucceededIndexes: &indexes, SucceededCount: count}
	}
	job := &batchv1.Job{Spec: batchv1.JobSpec{
		Completions: new(int32(3)),
		SuccessPolicy: &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{
			rule("3-9", nil),
			rule("5,7", new(int32(1))),
			rule("1-9", new(int32(4))),
		}},
	}}
	for text, want := range map[string]int{"": -1, "0": -1, "0,1": -1, "1,2": 2, "0-2": 2} {
		if got := successPolicy(job, parseIndexes(text, 3)); got != want {
			t.Errorf("with %q: rule %d is met, want %d", text, got, want)
		}
	}
}
