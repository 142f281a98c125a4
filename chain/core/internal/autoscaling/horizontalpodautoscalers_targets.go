package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

const (
	unknown = "<unknown>"
	// shownTargets is the maximum number of metrics shown in a table cell.
	shownTargets = 2
)

// targetsCell returns the current value, if known, and the target value of each metric.
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

// targetCell returns the cell of one metric. Quantity prints a quantity missing from the status as
// "<nil>", as in kube-apiserver.
func targetCell(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	switch {
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		if status.External == nil {
			return valueCell(spec.External.Target, nil)
		}
		return valueCell(spec.External.Target, &status.External.Current)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		current := unknown
		if status.Pods != nil {
			current = status.Pods.Current.AverageValue.String()
		}
		return current + "/" + spec.Pods.Target.AverageValue.String()
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		if status.Object == nil {
			return valueCell(spec.Object.Target, nil)
		}
		return valueCell(spec.Object.Target, &status.Object.Current)
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		if status.Resource == nil {
			return resourceCell(spec.Resource.Name, spec.Resource.Target, nil)
		}
		return resourceCell(spec.Resource.Name, spec.Resource.Target, &status.Resource.Current)
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		if status.ContainerResource == nil {
			return resourceCell(spec.ContainerResource.Name, spec.ContainerResource.Target, nil)
		}
		return resourceCell(spec.ContainerResource.Name, spec.ContainerResource.Target,
			&status.ContainerResource.Current)
	}
	return "<unknown type>"
}

// valueCell returns the cell of a metric with a value or an average value. current is nil if the
// metric has no status.
func valueCell(target autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	now := unknown
	if target.AverageValue != nil {
		if current != nil && current.AverageValue != nil {
			now = current.AverageValue.String()
		}
		return now + "/" + target.AverageValue.String() + " (avg)"
	}
	if current != nil {
		now = current.Value.String()
	}
	return now + "/" + target.Value.String()
}

func resourceCell(
	name corev1.ResourceName, target autoscalingv2.MetricTarget,
	current *autoscalingv2.MetricValueStatus,
) string {
	now, want := unknown, "<auto>"
	if target.AverageValue != nil {
		want = target.AverageValue.String()
		if current != nil {
			now = current.AverageValue.String()
		}
	} else {
		if target.AverageUtilization != nil {
			want = fmt.Sprintf("%d%%", *target.AverageUtilization)
		}
		if current != nil && current.AverageUtilization != nil {
			now = fmt.Sprintf("%d%%", *current.AverageUtilization)
		}
	}
	return string(name) + ": " + now + "/" + want
}
