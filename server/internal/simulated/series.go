package simulated

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// The prefixes of annotations that have the name of a metric: a custom metric of the object that is
// annotated, or an external one, on a namespace.
const (
	CustomMetric   = "custom.metrics.kinproc.dev/"
	ExternalMetric = "external.metrics.kinproc.dev/"
)

// Series is a value of a metric, with labels.
type Series struct {
	Labels labels.Set
	Amount Amount
}

// maxSeries is how many lines an annotation may have.
const maxSeries = 100

// ParseSeries parses the values of a metric, one a line: an amount, and labels if there are any, as
// in "40 queue=mail,region=eu".
func ParseSeries(text string) ([]Series, error) {
	var all []Series
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(all) == maxSeries {
			return nil, fmt.Errorf("a metric has at most %d lines", maxSeries)
		}
		var s Series
		amount := line
		if i := strings.LastIndexByte(line, ' '); i >= 0 && strings.Contains(line[i:], "=") {
			set, err := labels.ConvertSelectorToLabelsMap(line[i+1:])
			if err != nil {
				return nil, fmt.Errorf("%q: labels are like queue=mail,region=eu", line)
			}
			amount, s.Labels = line[:i], set
		}
		var err error
		if s.Amount, err = ParseAmount(amount); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
