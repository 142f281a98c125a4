package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/chain/internal/effect"
	"github.com/kinproc/kinproc/chain/internal/etcdstore"
	"github.com/kinproc/kinproc/chain/internal/stored"
	"github.com/kinproc/kinproc/chain/internal/tracer"
)

// Filter lets requests pass on to a handler unless a fault hits them.
func (f *Faults) Filter(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if some := f.some.Load(); !some && !mayWatch(r) {
			handler.ServeHTTP(w, r)
			return
		}
		about, ok := f.describe(r)
		if !ok {
			handler.ServeHTTP(w, r)
			return
		}
		if about.info.IsResourceRequest && about.info.Verb == "watch" {
			f.watch(handler, w, r, about)
			return
		}
		one := f.find(&about)
		if one == nil {
			handler.ServeHTTP(w, r)
			return
		}
		note(r, one)
		f.disturb(handler, w, r, &about, one)
	})
}

// note tells the trace and the audit log that a fault hits a request.
func note(r *http.Request, one *injected) {
	tracer.From(r.Context()).Begin("fault")(one.Spec.Effect.String(), "fault "+one.ID)
	audit.AddAuditAnnotation(r.Context(), fault.Annotation, one.Spec.Effect.String())
}

// disturb answers a request that a fault has hit.
func (f *Faults) disturb(
	handler http.Handler, w http.ResponseWriter, r *http.Request, about *request, one *injected,
) {
	switch is := one.effect(); is.Type {
	case effect.Fail:
		f.refuse(w, r, about, &apierrors.StatusError{ErrStatus: *is.Answer()})
	case effect.Conflict:
		f.refuse(w, r, about, apierrors.NewConflict(
			schema.GroupResource{Group: about.info.APIGroup, Resource: about.info.Resource}, about.info.Name,
			errors.New("the object has been modified; please apply your changes to the latest version "+
				"and try again")))
	case effect.TimeOut:
		f.refuse(w, r, about,
			apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
	case effect.ExpireWatch: // of a watch that begins
		f.refuse(w, r, about, expired())
	case effect.Cut, effect.BreakWatch:
		panic(http.ErrAbortHandler)
	case effect.LoseAnswer:
		handler.ServeHTTP(discard{http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case effect.Delay:
		one.delay(r.Context())
		handler.ServeHTTP(w, r)
	case effect.Freeze, effect.Lag:
		handler.ServeHTTP(w, r.WithContext(etcdstore.WithView(r.Context(), one.view())))
	}
}

// delay waits until the delay is over, or nobody waits for it any more.
func (one *injected) delay(ctx context.Context) {
	timer := time.NewTimer(one.effect().Delay.Duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-one.released:
	case <-ctx.Done():
	}
}

func expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("fault: the requested resource version has been compacted")
}

// view returns what the reads see that the fault hits.
func (one *injected) view() etcdstore.View {
	is := one.effect()
	return etcdstore.View{Revision: is.Revision, Behind: is.Revisions, Released: one.released}
}

// refuse answers with an error of the API.
func (f *Faults) refuse(w http.ResponseWriter, r *http.Request, about *request, err error) {
	version := schema.GroupVersion{Version: "v1"}
	if about.info.IsResourceRequest {
		version = schema.GroupVersion{Group: about.info.APIGroup, Version: about.info.APIVersion}
	}
	responsewriters.ErrorNegotiated(err, f.config.Serializer, version, w, r)
}

// discard is the response that gets lost.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) Flush()                      {}

// maxBody limits what is read of a body to find the name of an object. It is kube-apiserver's
// limit.
const maxBody = 3 << 20

// readName finds the name of the object that a request creates, which is in the body.
func (r *request) readName() {
	if r.name != "" || r.info.Verb != "create" || r.info.Subresource != "" || r.http.Body == nil {
		return
	}
	original := r.http.Body
	data, err := io.ReadAll(io.LimitReader(original, maxBody))
	rest := io.Reader(original)
	if err != nil {
		rest = failed{err}
	}
	r.http.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), rest), original}
	r.name = nameIn(data)
}

// failed is a reader that returns an error.
type failed struct{ error }

func (f failed) Read([]byte) (int, error) { return 0, f.error }

// nameIn returns the name of an encoded object.
func nameIn(data []byte) string {
	var object metav1.PartialObjectMetadata
	if stored.Metadata(data, &object) != nil && documents.Decode(data, &object) != nil {
		return ""
	}
	return object.Name
}
