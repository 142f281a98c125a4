package chain

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"

	"github.com/kinproc/kinproc/chain/internal/tracer"
	"github.com/kinproc/kinproc/chain/trace"
)

// TraceAdmission is an [admission.Decorator] by which plugins that have a say appear in the traces
// of requests: those that change the object or refuse the request.
func TraceAdmission(plugin admission.Interface, name string) admission.Interface {
	return tracedPlugin{plugin, name}
}

type tracedPlugin struct {
	admission.Interface
	name string
}

// Admit implements admission.MutationInterface.
func (p tracedPlugin) Admit(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	plugin, ok := p.Interface.(admission.MutationInterface)
	if !ok {
		return nil
	}
	t := tracer.From(ctx)
	if t == nil {
		return plugin.Admit(ctx, a, o)
	}
	t.Saw(a.GetObject())
	began := time.Now()
	err := plugin.Admit(ctx, annotated{a, t}, o)
	step := trace.Step{At: "mutating admission", Decision: "changed", Reason: p.name}
	if err != nil {
		step.Decision = "refused"
		t.Add(step, began, time.Now())
		return err
	}
	t.Changed(step, a.GetObject(), began, time.Now())
	return nil
}

// annotated are attributes whose audit annotations are seen by the trace: those of webhooks have
// their patches.
type annotated struct {
	admission.Attributes
	trace *tracer.Trace
}

// AddAnnotationWithLevel implements admission.Attributes.
func (a annotated) AddAnnotationWithLevel(key, value string, level auditinternal.Level) error {
	a.trace.Annotated(key, value)
	return a.Attributes.AddAnnotationWithLevel(key, value, level)
}

// Validate implements admission.ValidationInterface.
func (p tracedPlugin) Validate(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	plugin, ok := p.Interface.(admission.ValidationInterface)
	if !ok {
		return nil
	}
	began := time.Now()
	err := plugin.Validate(ctx, a, o)
	if err != nil {
		tracer.From(ctx).Add(trace.Step{
			At: "validating admission", Decision: "refused", Reason: p.name,
		}, began, time.Now())
	}
	return err
}
