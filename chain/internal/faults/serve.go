package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/kinproc/kinproc/chain/fault"
)

// maxFault limits the size of a fault that a client adds.
const maxFault = 1 << 20

// ServeHTTP serves [fault.Path] and the paths below it.
func (f *Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, fault.Path), "/")
	var answer any
	var err error
	switch {
	case r.Method == http.MethodGet && id == "":
		answer = fault.List{Items: f.list()}
	case r.Method == http.MethodGet:
		answer, err = f.get(id)
	case r.Method == http.MethodPost && id == "":
		answer, err = f.post(w, r)
	case r.Method == http.MethodDelete && id == "":
		f.removeAll()
		answer = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		}
	case r.Method == http.MethodDelete:
		var found bool
		if answer, found = f.remove(id); !found {
			err = notFound(id)
		}
	default:
		allowed := "GET, DELETE"
		if id == "" {
			allowed = "GET, POST, DELETE"
		}
		w.Header().Set("Allow", allowed)
		err = apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method,
			schema.GroupResource{}, "", "only "+allowed+" are allowed", 0, false)
	}
	if err != nil {
		if !errors.As(err, new(apierrors.APIStatus)) {
			err = apierrors.NewInternalError(err)
		}
		responsewriters.ErrorNegotiated(err, f.config.Serializer, schema.GroupVersion{}, w, r)
		return
	}
	responsewriters.WriteRawJSON(http.StatusOK, answer, w)
}

func notFound(id string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "faults"}, id)
}

func (f *Faults) get(id string) (fault.Fault, error) {
	all := f.list()
	i := slices.IndexFunc(all, func(one fault.Fault) bool { return one.ID == id })
	if i < 0 {
		return fault.Fault{}, notFound(id)
	}
	return all[i], nil
}

// post adds the fault in the body of a request.
func (f *Faults) post(w http.ResponseWriter, r *http.Request) (added fault.Fault, err error) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxFault))
	decoder.DisallowUnknownFields()
	var spec fault.Spec
	if err := decoder.Decode(&spec); err != nil {
		return added, apierrors.NewBadRequest(fmt.Sprintf("the body is not a fault: %v", err))
	}
	return f.add(r.Context(), spec)
}
