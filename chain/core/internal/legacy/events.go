package legacy

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/kind"
)

const (
	// Limits on the text fields of new-style events, in bytes.
	maxEventWord    = 128
	maxEventMessage = 1024
)

// Events declares events, which are served in the core group and in events.k8s.io. Writes through
// events.k8s.io are validated more strictly. An event is gone after ttl, unless that is 0.
func Events(ttl time.Duration) *kind.Kind[*corev1.Event] {
	return &kind.Kind[*corev1.Event]{
		Plural:         "events",
		ShortNames:     []string{"ev"},
		Versions:       []kind.Version{eventsOfOwnGroup()},
		Name:           path.ValidatePathSegmentName,
		Validate:       validateEvent,
		ValidateUpdate: validateEventUpdate,
		Table: kind.Table[*corev1.Event]{
			Columns: []kind.Column{
				{Name: "Last Seen", Description: "Time since the event was last observed."},
				{Name: "Type", Description: "Type of the event: Normal or Warning."},
				{Name: "Reason", Description: "Reason for the event, as a single word."},
				{Name: "Object", Description: "Object that the event is about."},
				{Name: "Subobject", Priority: 1, Description: "Part of the object that the event is about."},
				{Name: "Source", Priority: 1, Description: "Component that reported the event."},
				{Name: "Message", Description: "Human-readable description of the event."},
				{Name: "First Seen", Priority: 1, Description: "Time since the event was first observed."},
				{Name: "Count", Priority: 1, Description: "Number of times the event occurred."},
				{Name: "Name", Format: "name", Priority: 1, Description: "Name of the event."},
			},
			Row: eventRow,
		},
		Fields:         eventFields(),
		CreateOnUpdate: true,
		Adjust: func(store *genericregistry.Store) {
			store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) {
				return uint64(ttl / time.Second), nil
			}
		},
		Quirks: kind.Quirks{
			AnyFinalizers:   true,
			LooseMetadata:   true,
			DefaultDeletion: func(context.Context) rest.GarbageCollectionPolicy { return rest.Unsupported },
		},
	}
}

func eventFields() map[string]func(*corev1.Event) string {
	return map[string]func(*corev1.Event) string{
		"involvedObject.kind": func(e *corev1.Event) string { return e.InvolvedObject.Kind },
		"involvedObject.namespace": func(e *corev1.Event) string {
			return e.InvolvedObject.Namespace
		},
		"involvedObject.name": func(e *corev1.Event) string { return e.InvolvedObject.Name },
		"involvedObject.uid": func(e *corev1.Event) string {
			return string(e.InvolvedObject.UID)
		},
		"involvedObject.apiVersion": func(e *corev1.Event) string {
			return e.InvolvedObject.APIVersion
		},
		"involvedObject.resourceVersion": func(e *corev1.Event) string {
			return e.InvolvedObject.ResourceVersion
		},
		"involvedObject.fieldPath": func(e *corev1.Event) string { return e.InvolvedObject.FieldPath },
		"reason":                   func(e *corev1.Event) string { return e.Reason },
		"reportingComponent":       func(e *corev1.Event) string { return e.ReportingController },
		"source":                   reporter,
		"type":                     func(e *corev1.Event) string { return e.Type },
	}
}

// reporter returns the name of the component that reported the event, which may be of either style.
func reporter(e *corev1.Event) string {
	if e.Source.Component != "" {
		return e.Source.Component
	}
	return e.ReportingController
}

func eventRow(e *corev1.Event) []any {
	first := kind.Since(&e.FirstTimestamp)
	if e.FirstTimestamp.IsZero() {
		first = kind.Since(&metav1.Time{Time: e.EventTime.Time})
	}
	last := first
	if !e.LastTimestamp.IsZero() {
		last = kind.Since(&e.LastTimestamp)
	}
	count := e.Count
	if count == 0 {
		count = 1
	}
	if e.Series != nil {
		last, count = kind.Since(&metav1.Time{Time: e.Series.LastObservedTime.Time}), e.Series.Count
	}
	object := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		object += "/" + e.InvolvedObject.Name
	}
	source, instance := reporter(e), e.Source.Host
	if instance == "" {
		instance = e.ReportingInstance
	}
	if instance != "" {
		source += ", " + instance
	}
	return []any{
		last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, source, strings.TrimSpace(e.Message),
		first, int64(count), e.Name,
	}
}

// isStrict reports whether the request came through events.k8s.io. A request without RequestInfo
// counts as strict.
func isStrict(ctx context.Context) bool {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	return !ok || info.APIGroup == eventsv1.GroupName
}

func validateEvent(ctx context.Context, e *corev1.Event) field.ErrorList {
	errs := validateEventOfAnyStyle(ctx, e)
	if !isStrict(ctx) {
		return errs
	}
	errs = append(errs, apivalidation.ValidateObjectMeta(&e.ObjectMeta, true,
		apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
	errs = append(errs, kind.ValidateFinalizers(e)...)
	errs = append(errs, validateEventSeries(e)...)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), "must be specified"))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), e.Type, "must be Normal or Warning"))
	}
	for name, set := range map[string]bool{
		"firstTimestamp": !e.FirstTimestamp.IsZero(),
		"lastTimestamp":  !e.LastTimestamp.IsZero(),
		"count":          e.Count != 0,
		"source":         e.Source != corev1.EventSource{},
	} {
		if set {
			errs = append(errs, field.Invalid(field.NewPath(name), "",
				"must not be set through events.k8s.io"))
		}
	}
	return errs
}

func validateEventUpdate(ctx context.Context, e, old *corev1.Event) field.ErrorList {
	errs := validateEventOfAnyStyle(ctx, e)
	if !isStrict(ctx) {
		return errs
	}
	errs = append(errs, kind.ValidateFinalizers(e)...)
	if !equality.Semantic.DeepEqual(e.Series, old.Series) {
		errs = append(errs, validateEventSeries(e)...)
	}
	for _, f := range []struct {
		name       string
		value, old any
	}{
		{"involvedObject", e.InvolvedObject, old.InvolvedObject},
		{"reason", e.Reason, old.Reason},
		{"message", e.Message, old.Message},
		{"source", e.Source, old.Source},
		{"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp},
		{"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count},
		{"type", e.Type, old.Type},
		{"eventTime", e.EventTime, old.EventTime},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.value, f.old,
			field.NewPath(f.name))...)
	}
	return errs
}

func validateEventSeries(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.Series == nil {
		return nil
	}
	if e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"),
			e.Series.Count, "must be at least 2"))
	}
	if e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), "must be specified"))
	}
	return errs
}

// validateEventOfAnyStyle validates an event of either style. Only new-style events have an
// eventTime.
func validateEventOfAnyStyle(ctx context.Context, e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	about := e.InvolvedObject.Namespace
	agrees := about == e.Namespace
	if about == "" { // the object is cluster-scoped
		agrees = e.Namespace == metav1.NamespaceDefault || e.EventTime.IsZero() && e.Namespace == "" ||
			!e.EventTime.IsZero() && e.Namespace == metav1.NamespaceSystem
	} else if !e.EventTime.IsZero() {
		agrees = true
	}
	if !agrees {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), about,
			"must match the namespace of the event"))
	}
	if !e.EventTime.IsZero() {
		errs = append(errs, validateWords(ctx, e)...)
	}
	return append(errs, rules.Invalid(field.NewPath("namespace"), e.Namespace,
		validation.IsDNS1123Subdomain(e.Namespace))...)
}

// validateWords checks that a new-style event sets the required text fields and that no field is
// too long.
func validateWords(ctx context.Context, e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	controller := "reportingController"
	if !isStrict(ctx) { // the core group names the field differently
		controller = "reportingComponent"
	}
	for _, f := range []struct {
		name, value string
		required    bool
		max         int
	}{
		{controller, e.ReportingController, true, 0},
		{"reportingInstance", e.ReportingInstance, true, maxEventWord},
		{"action", e.Action, true, maxEventWord},
		{"reason", e.Reason, true, maxEventWord},
		{"message", e.Message, false, maxEventMessage},
	} {
		if f.required && f.value == "" {
			errs = append(errs, field.Required(field.NewPath(f.name), ""))
		}
		if f.max > 0 && len(f.value) > f.max {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "",
				fmt.Sprintf("can have at most %d characters", f.max)))
		}
	}
	return append(errs, rules.Invalid(field.NewPath(controller), e.ReportingController,
		validation.IsQualifiedName(e.ReportingController))...)
}
