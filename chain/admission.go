package chain

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

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
	before, began := encoded(a), time.Now()
	err := plugin.Admit(ctx, a, o)
	ended := time.Now()
	const at = "mutating admission"
	if err != nil {
		t.Add(trace.Step{At: at, Decision: "refused", Reason: p.name}, began, ended)
		return err
	}
	changes := patch(before, encoded(a))
	if changes == nil {
		return nil
	}
	if a.GetResource() == corev1.SchemeGroupVersion.WithResource("secrets") {
		changes = nil
	}
	t.Add(trace.Step{At: at, Decision: "changed", Reason: p.name, Patch: changes}, began, ended)
	return nil
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

// encoded returns the object of a request as JSON.
func encoded(a admission.Attributes) []byte {
	data, err := json.Marshal(a.GetObject())
	if err != nil {
		return nil // the request fails when it encodes the object
	}
	return data
}

// patch returns what has changed, or nil if nothing has. Some plugins drop the kind and the version
// of the object, which a typed object need not have.
func patch(before, after []byte) json.RawMessage {
	operations, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return nil
	}
	operations = slices.DeleteFunc(operations, func(o jsonpatch.Operation) bool {
		return o.Path == "/kind" || o.Path == "/apiVersion"
	})
	if len(operations) == 0 {
		return nil
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return nil
	}
	return data
}
