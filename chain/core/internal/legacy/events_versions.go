package legacy

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// eventsOfOwnGroup returns the version of events in events.k8s.io, which serves the same objects
// with different field names.
func eventsOfOwnGroup() kind.Version {
	labels := map[string]string{
		"reason":              "reason",
		"reportingController": "reportingComponent",
		"type":                "type",
		"metadata.name":       "metadata.name",
		"metadata.namespace":  "metadata.namespace",
	}
	for _, of := range []string{
		"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath",
	} {
		labels["regarding."+of] = "involvedObject." + of
	}
	return kind.ServedAs(eventToCore, eventFromCore, nil).WithFields(labels)
}

func eventToCore(in *eventsv1.Event, out *corev1.Event) error {
	out.ObjectMeta = in.ObjectMeta
	out.InvolvedObject = in.Regarding
	out.Related = in.Related
	out.Reason, out.Action, out.Type = in.Reason, in.Action, in.Type
	out.Message = in.Note
	out.Source = in.DeprecatedSource
	out.FirstTimestamp, out.LastTimestamp = in.DeprecatedFirstTimestamp, in.DeprecatedLastTimestamp
	out.Count = in.DeprecatedCount
	out.EventTime = in.EventTime
	out.ReportingController, out.ReportingInstance = in.ReportingController, in.ReportingInstance
	out.Series = nil
	if in.Series != nil {
		out.Series = &corev1.EventSeries{
			Count:            in.Series.Count,
			LastObservedTime: in.Series.LastObservedTime,
		}
	}
	return nil
}

func eventFromCore(in *corev1.Event, out *eventsv1.Event) error {
	out.ObjectMeta = in.ObjectMeta
	out.Regarding = in.InvolvedObject
	out.Related = in.Related
	out.Reason, out.Action, out.Type = in.Reason, in.Action, in.Type
	out.Note = in.Message
	out.DeprecatedSource = in.Source
	out.DeprecatedFirstTimestamp, out.DeprecatedLastTimestamp = in.FirstTimestamp, in.LastTimestamp
	out.DeprecatedCount = in.Count
	out.EventTime = in.EventTime
	out.ReportingController, out.ReportingInstance = in.ReportingController, in.ReportingInstance
	out.Series = nil
	if in.Series != nil {
		out.Series = &eventsv1.EventSeries{
			Count:            in.Series.Count,
			LastObservedTime: in.Series.LastObservedTime,
		}
	}
	return nil
}
