package tracer

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/trace"
)

// WithSpans gives traced requests an OpenTelemetry span. The handlers, stores and webhook clients
// of k8s.io/apiserver then record spans of their own, most of which become steps of the trace.
// Stored returns the version in which the objects of a request are stored, which is empty if that
// is not known, and whether it is a hub version, to which objects are decoded.
//
// It must be behind apiserver's filter for tracing, which replaces the span of a request.
func WithSpans(
	handler http.Handler,
	stored func(*genericapirequest.RequestInfo) (version schema.GroupVersion, hub bool),
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := From(r.Context())
		if t == nil {
			handler.ServeHTTP(w, r)
			return
		}
		s := spans{trace: t}
		if info, ok := genericapirequest.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
			version, hub := stored(info)
			s.version, s.stored, s.hub = path.Join(info.APIGroup, info.APIVersion), version.String(), hub
		}
		// Without these options, environment variables would decide.
		provider := sdktrace.NewTracerProvider(
			sdktrace.WithSampler(sdktrace.AlwaysSample()),
			sdktrace.WithResource(resource.Empty()),
			sdktrace.WithRawSpanLimits(unlimited),
			sdktrace.WithSpanProcessor(s),
		)
		ctx, span := provider.Tracer("").Start(r.Context(), "request")
		defer span.End()
		handler.ServeHTTP(w, r.WithContext(withProxy(ctx, t)))
	})
}

var unlimited = sdktrace.SpanLimits{
	AttributeValueLengthLimit:   sdktrace.DefaultAttributeValueLengthLimit, // none
	AttributeCountLimit:         -1,
	EventCountLimit:             -1,
	LinkCountLimit:              -1,
	AttributePerEventCountLimit: -1,
	AttributePerLinkCountLimit:  -1,
}

// spans adds the spans that end to the trace of a request for a group version, whose objects are
// stored in another one perhaps.
type spans struct {
	trace           *Trace
	version, stored string
	hub             bool // whether stored is a hub version
}

func (s spans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (s spans) Shutdown(context.Context) error                  { return nil }
func (s spans) ForceFlush(context.Context) error                { return nil }

// OnEnd adds the steps that a span describes.
func (s spans) OnEnd(span sdktrace.ReadOnlySpan) {
	switch name := span.Name(); {
	case strings.HasPrefix(name, "Call ") && strings.HasSuffix(name, " webhook"):
		what := values(span.Attributes())
		webhook := what["configuration"] + "/" + what["webhook"]
		s.trace.Add(trace.Step{
			At: "webhook", Decision: "called", Reason: webhook, Patch: s.trace.patchOf(webhook),
		}, span.StartTime(), span.EndTime())
	case name == "SerializeObject":
		s.encoding(span)
	default:
		s.events(span)
	}
}

// pairs are the pairs of span events of k8s.io/apiserver between which something happens that a
// trace shows. The event of an empty name is the start of the span.
var pairs = []struct{ from, to, at, decision string }{
	{"", "limitedReadBody succeeded", "body", "read"},
	{"About to convert to expected version", "Conversion done", "decoding", "decoded"},
	{"About to apply patch", "About to check admission control", "patching", "patched"},
	{"About to Encode", "Encode succeeded", "storage encoding", "encoded"},
	{"TransformFromStorage succeeded", "Decode succeeded", "storage decoding", "decoded"},
}

// received returns the version of an object in the request, and to which version it is converted.
func (s spans) received() string {
	if s.hub && s.stored != s.version {
		return s.version + " to the hub version " + s.stored
	}
	return s.version
}

// written returns the version of an object in the storage if it differs from that in the request.
func (s spans) written() string {
	if s.stored == s.version {
		return ""
	}
	return s.stored
}

// events adds a step for each pair of events in a span.
func (s spans) events(span sdktrace.ReadOnlySpan) {
	began := map[string]time.Time{"": span.StartTime()}
	for _, e := range span.Events() {
		for _, p := range pairs {
			if start, ok := began[p.from]; ok && e.Name == p.to {
				step := trace.Step{At: p.at, Decision: p.decision, Reason: size(values(e.Attributes)["len"])}
				switch p.at {
				case "decoding", "patching":
					step.Reason = s.received()
				case "storage encoding", "storage decoding":
					step.Reason = strings.TrimPrefix(s.written()+", "+step.Reason, ", ")
				}
				s.trace.Add(step, start, e.Time)
			}
		}
		began[e.Name] = e.Time
	}
}

// encoding adds the step in which the response is encoded and written.
func (s spans) encoding(span sdktrace.ReadOnlySpan) {
	what := values(span.Attributes())["mediaType"]
	for _, e := range span.Events() {
		if n := values(e.Attributes)["size"]; e.Name == "Write call succeeded" && n != "" {
			what += ", " + size(n)
		}
	}
	s.trace.Add(trace.Step{At: "encoding", Decision: "encoded", Reason: what}, span.StartTime(),
		span.EndTime())
}

func values(attributes []attribute.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[string(a.Key)] = a.Value.Emit()
	}
	return all
}

func size(n string) string {
	if n == "" {
		return ""
	}
	return fmt.Sprintf("%s bytes", n)
}
