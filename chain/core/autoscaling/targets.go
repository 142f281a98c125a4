package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	unknown = "<unknown>"
	// shownTargets is the number of metrics that a table cell shows.
	shownTargets = 2
)

// targetsCell shows each metric as it is, where that is known, and as it should be.
func targetsCell(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	if len(specs) == 0 {
		return "<none>"
	}
	var cells []string
	for i := range specs[:min(len(specs), shownTargets)] {
		var status autoscalingv2.MetricStatus
		if i < len(statuses) {
			status = statuses[i]
		}
		cells = append(cells, targetCell(&specs[i], &status))
	}
	cell := strings.Join(cells, ", ")
	if more := len(specs) - len(cells); more > 0 {
		cell += fmt.Sprintf(" + %d more...", more)
	}
	return cell
}

func targetCell(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	var current autoscalingv2.MetricValueStatus
	switch {
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		if status.External != nil {
			current = status.External.Current
		}
		return valueCell(spec.External.Target, current)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		if status.Pods != nil {
			current = status.Pods.Current
		}
		return quantityCell(current.AverageValue) + "/" + quantityCell(spec.Pods.Target.AverageValue)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		if status.Object != nil {
			current = status.Object.Current
		}
		return valueCell(spec.Object.Target, current)
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		if status.Resource != nil {
			current = status.Resource.Current
		}
		return string(spec.Resource.Name) + ": " + resourceCell(spec.Resource.Target, current)
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		if status.ContainerResource != nil {
			current = status.ContainerResource.Current
		}
		return string(spec.ContainerResource.Name) + ": " + resourceCell(spec.ContainerResource.Target, current)
	}
	return "<unknown type>"
}

func valueCell(target autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return quantityCell(current.AverageValue) + "/" + quantityCell(target.AverageValue) + " (avg)"
	}
	return quantityCell(current.Value) + "/" + quantityCell(target.Value)
}

func resourceCell(target autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return quantityCell(current.AverageValue) + "/" + quantityCell(target.AverageValue)
	}
	percent := func(n *int32, none string) string {
		if n == nil {
			return none
		}
		return fmt.Sprintf("%d%%", *n)
	}
	return percent(current.AverageUtilization, unknown) + "/" + percent(target.AverageUtilization, "<auto>")
}

func quantityCell(q *resource.Quantity) string {
	if q == nil {
		return unknown
	}
	return q.String()
}
