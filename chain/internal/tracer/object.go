package tracer

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kinproc/kinproc/chain/trace"
)

// object is what a trace knows about the object of its request.
type object struct {
	first   []byte                     // as it was decoded, as JSON
	now     []byte                     // as JSON
	at      time.Time                  // of now
	patches map[string]json.RawMessage // of webhooks, by name
}

// hidden reports whether objects of the request may hold secrets. The caller holds the mutex.
func (t *Trace) hidden() bool {
	if t.info == nil {
		return true
	}
	switch t.info.Resource {
	case "secrets":
		return t.info.APIGroup == ""
	case "serviceaccounts":
		return t.info.APIGroup == "" && t.info.Subresource == "token"
	case "tokenreviews":
		return t.info.APIGroup == "authentication.k8s.io"
	}
	return false
}

// Saw says how the object of the request is at present.
func (t *Trace) Saw(obj runtime.Object) {
	if t == nil {
		return
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return // the request fails when it encodes the object
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.object.first == nil {
		t.object.first = data
	}
	t.object.now, t.object.at = data, time.Now()
}

// decoded returns the object as the request has it, if step is where it was made and the trace may
// show it. The caller holds the mutex.
func (t *Trace) decoded(step *trace.Step) json.RawMessage {
	if !t.objects || step.At != "decoding" && step.At != "patching" || t.hidden() {
		return nil
	}
	return t.object.first
}

// Changed adds a step if the object has changed since the last call of Saw, Changed or Prepared.
func (t *Trace) Changed(step trace.Step, obj runtime.Object, from, to time.Time) {
	if t == nil {
		return
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return
	}
	t.mu.Lock()
	changes := patch(t.object.now, data)
	t.object.now, t.object.at = data, to
	if changes != nil && !t.hidden() {
		step.Patch = changes
		if t.objects {
			step.Object = data
		}
	}
	t.mu.Unlock()
	if changes != nil {
		t.Add(step, from, to)
	}
}

// Prepared adds a step if the strategy of the object's kind and the generic registry have changed
// the object since the last call of Saw, Changed or Prepared.
func (t *Trace) Prepared(obj runtime.Object) {
	if t == nil {
		return
	}
	now := time.Now()
	t.mu.Lock()
	seen, since := t.object.now != nil, t.object.at
	t.mu.Unlock()
	if seen {
		t.Changed(trace.Step{At: "strategy", Decision: "prepared"}, obj, since, now)
	}
}

// patchPrefix is the beginning of the audit annotations with the patches of mutating webhooks.
const patchPrefix = "patch.webhook.admission.k8s.io/"

// Annotated takes the patch of a webhook from an audit annotation, which apiserver adds while the
// span of the webhook's call lasts.
func (t *Trace) Annotated(key, value string) {
	if t == nil || !strings.HasPrefix(key, patchPrefix) {
		return
	}
	var changed struct {
		Configuration, Webhook string
		Patch                  json.RawMessage
	}
	if json.Unmarshal([]byte(value), &changed) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hidden() {
		return
	}
	if t.object.patches == nil {
		t.object.patches = map[string]json.RawMessage{}
	}
	t.object.patches[changed.Configuration+"/"+changed.Webhook] = changed.Patch
}

// patchOf returns the patch of a webhook's latest call.
func (t *Trace) patchOf(webhook string) json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.object.patches[webhook]
	delete(t.object.patches, webhook)
	return last
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
	slices.SortStableFunc(operations, func(a, b jsonpatch.Operation) int {
		return cmp.Compare(outsideArrays(a.Path), outsideArrays(b.Path))
	})
	data, err := json.Marshal(operations)
	if err != nil {
		return nil
	}
	return data
}

// outsideArrays returns a path up to the first array in it. The operations of a patch are in the
// random order of maps, except for those within an array, whose order matters.
func outsideArrays(path string) string {
	parts := strings.Split(path, "/")
	i := slices.IndexFunc(parts, func(part string) bool {
		_, err := strconv.Atoi(part)
		return err == nil
	})
	if i < 0 {
		return path
	}
	return strings.Join(parts[:i], "/")
}
