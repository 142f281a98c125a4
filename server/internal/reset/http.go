package reset

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kinproc/kinproc/embed"
	"github.com/kinproc/kinproc/server/internal/requests/paths"
)

// maxSnapshot limits the size of an uploaded snapshot. It is as large as etcd's largest recommended
// database.
const maxSnapshot = 8 << 30

// Handlers returns the handlers of [paths.Snapshot] and [paths.Reset].
func (c *Control) Handlers() map[string]http.Handler {
	return map[string]http.Handler{
		paths.Snapshot: only(http.MethodGet, c.send),
		paths.Reset:    only(http.MethodPost, c.receive),
	}
}

func only(method string, handle http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method {
			w.Header().Set("Allow", method)
			refuse(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method,
				schema.GroupResource{}, "", "only "+method+" is allowed", 0, false))
			return
		}
		handle(w, r)
	})
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, clientscheme.Codecs, schema.GroupVersion{}, w, r)
}

func (c *Control) send(w http.ResponseWriter, r *http.Request) {
	revision, err := c.revision(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	snapshot, err := c.Snapshot(r.Context())
	if err == nil && revision != 0 {
		snapshot, err = snapshot.At(revision)
	}
	switch {
	case errors.Is(err, mvcc.ErrCompacted):
		err = apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, mvcc.ErrFutureRev):
		err = apierrors.NewBadRequest(err.Error())
	case err != nil:
		err = apierrors.NewInternalError(err)
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(snapshot.Size(), 10))
	_, _ = snapshot.WriteTo(w) // the client notices that it is too short
}

// revision returns the revision of which a request asks for a snapshot, or 0 for the current one.
func (c *Control) revision(r *http.Request) (int64, error) {
	query := r.URL.Query()
	number, at := query.Get(paths.RevisionParameter), query.Get(paths.TimeParameter)
	switch {
	case number != "" && at != "":
		return 0, apierrors.NewBadRequest("revision and time are mutually exclusive")
	case number != "":
		revision, err := strconv.ParseInt(number, 10, 64)
		if err != nil || revision < 1 {
			return 0, apierrors.NewBadRequest(fmt.Sprintf("revision: %q is not a positive number",
				number))
		}
		return revision, nil
	case at != "":
		when, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			return 0, apierrors.NewBadRequest(fmt.Sprintf(
				"time: %q is not a time such as 2006-01-02T15:04:05Z", at))
		}
		return c.config.Storage.RevisionAt(r.Context(), when)
	}
	return 0, nil
}

func (c *Control) receive(w http.ResponseWriter, r *http.Request) {
	snapshot, err := embed.ReadSnapshot(http.MaxBytesReader(w, r.Body, maxSnapshot))
	if err != nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<20))
		if errors.Is(err, embed.ErrCorrupt) || errors.Is(err, embed.ErrNewerVersion) {
			err = apierrors.NewBadRequest(err.Error())
		} else {
			err = apierrors.NewInternalError(err)
		}
		refuse(w, r, err)
		return
	}
	switch err := c.Reset(r.Context(), snapshot); {
	case errors.Is(err, errExternal):
		refuse(w, r, apierrors.NewBadRequest(err.Error()))
	case err != nil:
		refuse(w, r, apierrors.NewInternalError(err))
	default:
		responsewriters.WriteRawJSON(http.StatusOK, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		}, w)
	}
}
