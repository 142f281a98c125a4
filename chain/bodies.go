package chain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/chain/documents"
)

// checkBodies checks the bodies that the libraries would decode at any cost. A body is
// checked when the server that handles the request reads it: if the request is refused for another
// reason, its body is not looked at.
func (c *Chain) checkBodies(handler http.Handler, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if check := c.bodyCheck(r, limit); check != nil {
			r = r.WithContext(r.Context()) // a copy
			r.Body = &checkedBody{ReadCloser: r.Body, limit: limit, check: check}
		}
		handler.ServeHTTP(w, r)
	})
}

// bodyCheck returns the check for the body of a request, or nil if the body needs none.
func (c *Chain) bodyCheck(r *http.Request, limit int64) func(body []byte) error {
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	isYAML := strings.HasSuffix(mediaType, "yaml") &&
		(r.Method == http.MethodPatch || mediaType != string(types.ApplyYAMLPatchType))
	isProtobuf := mediaType == runtime.ContentTypeProtobuf &&
		(r.Method == http.MethodPost || r.Method == http.MethodPut)
	if !isYAML && !isProtobuf {
		return nil
	}
	info, ok := genericapirequest.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || info.Subresource == "proxy" || c.elsewhere(info) {
		return nil
	}
	switch {
	case isProtobuf && c.custom(info):
		return refuseProtobuf
	case isProtobuf, r.Method == http.MethodPatch && refusesOptions(r, types.PatchType(mediaType)):
		return nil
	}
	return func(body []byte) error { return checkYAML(body, limit) }
}

// refusesOptions reports whether the options of a patch are invalid. Then the request is refused
// for them, and its body is not decoded.
func refusesOptions(r *http.Request, patchType types.PatchType) bool {
	var options metav1.PatchOptions
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(
		r.URL.Query(), metav1.SchemeGroupVersion, &options)
	return err != nil || len(metav1validation.ValidatePatchOptions(&options, patchType)) > 0
}

// custom reports whether a request is for custom resources. Their handler panics on protobuf,
// because it has no strict decoder for it. Their scale subresource is a kind with a protobuf form.
func (c *Chain) custom(info *genericapirequest.RequestInfo) bool {
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	return info.Subresource != "scale" && gv != apiregistrationv1.SchemeGroupVersion &&
		gv != extensionsVersion && !slices.Contains(c.Core.GroupVersions, gv)
}

func refuseProtobuf([]byte) error {
	return negotiation.NewUnsupportedMediaTypeError([]string{
		runtime.ContentTypeJSON, runtime.ContentTypeYAML,
	})
}

func checkYAML(body []byte, limit int64) error {
	err := documents.Check(body, limit)
	var tooLarge *documents.TooLargeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	return apierrors.NewBadRequest(fmt.Sprintf("decode the body: %v", err))
}

// elsewhere reports whether an extension API server serves the request.
func (c *Chain) elsewhere(info *genericapirequest.RequestInfo) bool {
	service, err := c.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().
		Lister().Get(info.APIVersion + "." + info.APIGroup)
	return err == nil && service.Spec.Service != nil
}

// checkedBody is a body that is checked on the first read. A body that is larger than the limit is
// left to its reader, which enforces the same limit.
type checkedBody struct {
	io.ReadCloser
	limit int64
	check func(body []byte) error

	read io.Reader // the body, once it has been checked
	err  error     // the result of the check
}

func (b *checkedBody) Read(p []byte) (int, error) {
	if b.read == nil && b.err == nil {
		b.inspect()
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.read.Read(p)
}

func (b *checkedBody) inspect() {
	body, err := io.ReadAll(io.LimitReader(b.ReadCloser, b.limit+1))
	if err == nil && int64(len(body)) <= b.limit {
		err = b.check(body)
	}
	b.read, b.err = io.MultiReader(bytes.NewReader(body), b.ReadCloser), err
}
