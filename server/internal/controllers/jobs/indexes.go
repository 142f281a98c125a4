package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// indexes is a set of completion indexes. The status of a Job has it as text such as "1,3-5".
type indexes map[int]bool

// parseIndexes ignores what is not below end, because a Job can become smaller.
func parseIndexes(text string, end int) indexes {
	set := indexes{}
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
		for i := first; i <= last && i < end; i++ {
			set[i] = true
		}
	}
	return set
}

func (s indexes) String() string {
	list := make([]int, 0, len(s))
	for i := range s {
		list = append(list, i)
	}
	slices.Sort(list)
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch {
		case i == j:
			parts = append(parts, strconv.Itoa(list[i]))
		case j == i+1:
			parts = append(parts, strconv.Itoa(list[i]), strconv.Itoa(list[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
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

// successPolicy returns the number of the first rule of the success policy that is met, or -1.
func successPolicy(job *batchv1.Job, succeeded indexes) int {
	if job.Spec.SuccessPolicy == nil {
		return -1
	}
	for n, rule := range job.Spec.SuccessPolicy.Rules {
		met := len(succeeded)
		want := 0
		if rule.SucceededIndexes != nil {
			required := parseIndexes(*rule.SucceededIndexes, int(*job.Spec.Completions))
			met, want = 0, len(required)
			for i := range required {
				if succeeded[i] {
					met++
				}
			}
		}
		if rule.SucceededCount != nil {
			want = int(*rule.SucceededCount)
		}
		if met >= want {
			return n
		}
	}
	return -1
}
