package chain

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// The libraries that apply patches panic on many patches that do not fit the object, such as one
// that replaces the whole object with null. Then one of these functions is on the stack. They call
// nothing but the code for patches.
const (
	applyJSONPatch  = "k8s.io/apiserver/pkg/endpoints/handlers.(*jsonPatcher).applyJSPatch("
	applyMergePatch = "k8s.io/apimachinery/pkg/util/strategicpatch."
)

// answerPanics answers a request that makes a server of the chain panic with an internal error, and
// logs the panic. If the request's patch is to blame, it refuses the patch as invalid instead. The
// library's filter would abort the connection; answerPanics does so only if part of the response
// has been sent.
func answerPanics(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &begun{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler || answer.begun { // recover returns what panic was given
				panic(p)
			}
			gv, resource, name := schema.GroupVersion{Version: "v1"}, "", ""
			if info, ok := genericapirequest.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
				gv, resource, name = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion},
					info.Resource, info.Name
			}
			// If the handler ran in another goroutine, as all handlers that write do, the reason is
			// followed by the stack.
			reason, stack, _ := strings.Cut(fmt.Sprint(p), "\n")
			err := apierrors.NewInternalError(fmt.Errorf("the request made the server panic: %s", reason))
			if strings.Contains(stack, applyJSONPatch) || strings.Contains(stack, applyMergePatch) {
				err = apierrors.NewInvalid(schema.GroupKind{Group: gv.Group, Kind: resource}, name,
					field.ErrorList{
						field.Invalid(field.NewPath("patch"), field.OmitValueType{},
							"cannot be applied to this object"),
					})
			} else {
				for _, log := range utilruntime.PanicHandlers {
					log(r.Context(), p)
				}
			}
			responsewriters.ErrorNegotiated(err, serializer, gv, w, r)
		}()
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), r)
	})
}

// begun is a ResponseWriter that records whether the response has begun.
type begun struct {
	http.ResponseWriter
	begun bool
}

func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *begun) WriteHeader(code int) {
	b.begun = true
	b.ResponseWriter.WriteHeader(code)
}

func (b *begun) Write(p []byte) (int, error) {
	b.begun = true
	return b.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (b *begun) Flush() {
	b.begun = true
	b.ResponseWriter.(http.Flusher).Flush()
}

// Hijack implements http.Hijacker.
func (b *begun) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	b.begun = true
	return b.ResponseWriter.(http.Hijacker).Hijack()
}
