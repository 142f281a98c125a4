package chain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/chain/internal/aliases"
	"github.com/kinproc/kinproc/chain/internal/patches"
)

// checkBodies has bodies judged that the libraries would decode or merge at any cost. A body is judged when the server that
// the request is for reads it: whoever is refused for another reason has sent nothing yet that was looked at.
func (c *Chain) checkBodies(handler http.Handler, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if check := c.bodyCheck(r, limit); check != nil {
			r = r.WithContext(r.Context()) // a copy
			r.Body = &checkedBody{ReadCloser: r.Body, limit: limit, check: check}
		}
		handler.ServeHTTP(w, r)
	})
}

// bodyCheck is what judges the body of a request, or nil.
func (c *Chain) bodyCheck(r *http.Request, limit int64) func(body []byte) error {
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	isYAML, isMerge := strings.HasSuffix(mediaType, "yaml"), mediaType == string(types.StrategicMergePatchType)
	if !isYAML && !isMerge {
		return nil
	}
	info, ok := genericapirequest.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || info.Subresource == "proxy" || c.elsewhere(info) {
		return nil
	}
	if isYAML {
		return func(body []byte) error { return checkYAML(body, limit) }
	}
	into := c.patched(info)
	if into == nil {
		return nil
	}
	return func(body []byte) error {
		if errs := patches.Check(body, into); len(errs) > 0 {
			return apierrors.NewInvalid(into.GetObjectKind().GroupVersionKind().GroupKind(), info.Name, errs)
		}
		return nil
	}
}

func checkYAML(body []byte, limit int64) error {
	err := aliases.Check(body, limit)
	var tooLarge *aliases.TooLargeError
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
	service, err := c.Aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister().Get(info.APIVersion + "." + info.APIGroup)
	return err == nil && service.Spec.Service != nil
}

// patched is an object of the kind that a strategic merge patch is for. It is nil for custom resources, which take none.
func (c *Chain) patched(info *genericapirequest.RequestInfo) runtime.Object {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	switch resource {
	case apiextensionsv1.Resource("customresourcedefinitions"):
		return withKind(&apiextensionsv1.CustomResourceDefinition{}, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	case apiregistrationv1.Resource("apiservices"):
		return withKind(&apiregistrationv1.APIService{}, apiregistrationv1.SchemeGroupVersion.WithKind("APIService"))
	}
	return c.Core.Object(resource.WithVersion(info.APIVersion), info.Subresource)
}

func withKind(object runtime.Object, gvk schema.GroupVersionKind) runtime.Object {
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return object
}

// checkedBody is a body that is judged when it is first read. One that is larger than the limit is left to its reader, which
// has the same limit.
type checkedBody struct {
	io.ReadCloser
	limit int64
	check func(body []byte) error

	read io.Reader // what there is to read, once it is known
	err  error     // why there is nothing to read
}

func (b *checkedBody) Read(p []byte) (int, error) {
	if b.read == nil && b.err == nil {
		b.judge()
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.read.Read(p)
}

func (b *checkedBody) judge() {
	body, err := io.ReadAll(io.LimitReader(b.ReadCloser, b.limit+1))
	if err == nil && int64(len(body)) <= b.limit {
		err = b.check(body)
	}
	b.read, b.err = io.MultiReader(bytes.NewReader(body), b.ReadCloser), err
}
