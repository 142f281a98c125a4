package chain

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/history"
	"github.com/kinproc/kinproc/chain/internal/etcdstore"
)

// versions serves the history of objects below [history.Path]. The information about such a request
// is that about a request for the objects, so it has been authorized like one.
type versions struct {
	storage    *Storage
	authorizer authorizer.Authorizer
	serializer runtime.NegotiatedSerializer

	stop    sync.Once
	stopped chan struct{}
}

// Stop ends the requests that follow a history.
func (v *versions) Stop() { v.stop.Do(func() { close(v.stopped) }) }

// ServeHTTP implements http.Handler.
func (v *versions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := v.serve(w, r); err != nil {
		responsewriters.ErrorNegotiated(err, v.serializer, schema.GroupVersion{}, w, r)
	}
}

func (v *versions) serve(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	resource := schema.GroupResource{}
	if ok {
		resource.Group, resource.Resource = info.APIGroup, info.Resource
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, resource, "",
			"only GET is allowed", 0, false)
	}
	if !ok || !info.IsResourceRequest || info.Subresource != "" {
		return apierrors.NewBadRequest("a history has a path such as " + history.Path +
			"/api/v1/namespaces/default/configmaps/limits")
	}
	o, err := history.ParseOptions(r.URL.Query())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	of := etcdstore.VersionsOf{
		Resource: resource, Namespace: info.Namespace, Name: info.Name, Limit: o.Limit,
	}
	if of.Labels, err = labels.Parse(o.Labels); err != nil {
		return apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	isNamespace := resource == schema.GroupResource{Resource: "namespaces"}
	switch {
	case o.Contents && (!isNamespace || info.Name == ""):
		return apierrors.NewBadRequest("contents: only namespaces have contents")
	case o.Contents:
		of.Resource, of.Name = schema.GroupResource{}, ""
		of.Allowed = v.listable(ctx, info.Namespace)
	case isNamespace:
		of.Namespace = ""
	}
	switch {
	case o.At != 0 && of.Name == "":
		return apierrors.NewBadRequest("revision: this is not the path of one object")
	case o.At != 0:
		return v.at(w, r, of, o.At)
	case info.Verb == "watch":
		return v.follow(w, r, of)
	}
	found, err := v.storage.Versions(ctx, of)
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case of.Name != "" && len(found.Versions) == 0:
		return apierrors.NewNotFound(resource, of.Name)
	}
	responsewriters.WriteRawJSON(http.StatusOK, found, w)
	return nil
}

// at serves one object as it was at a revision.
func (v *versions) at(
	w http.ResponseWriter, r *http.Request, of etcdstore.VersionsOf, revision int64,
) error {
	version, err := v.storage.VersionAt(r.Context(), of, revision)
	switch {
	case errors.Is(err, etcdstore.ErrNotKept):
		return apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, etcdstore.ErrFuture):
		return apierrors.NewBadRequest(err.Error())
	case err != nil:
		return apierrors.NewInternalError(err)
	case version == nil:
		return apierrors.NewNotFound(of.Resource, of.Name)
	}
	responsewriters.WriteRawJSON(http.StatusOK,
		history.History{Revision: revision, Versions: []history.Version{*version}}, w)
	return nil
}

// follow streams versions, a line of JSON for each.
func (v *versions) follow(w http.ResponseWriter, r *http.Request, of etcdstore.VersionsOf) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	following := make(chan struct{})
	defer close(following)
	go func() { // it ends with this function
		select {
		case <-v.stopped:
			cancel()
		case <-following:
		}
	}()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return nil // the client has gone
	}
	encoder := json.NewEncoder(w)
	_ = v.storage.FollowVersions(ctx, of, func(version history.Version) error {
		return errors.Join(encoder.Encode(version), flush())
	}) // the client sees the stream end
	return nil
}

// listable returns a function that reports whether the user may list a resource in a namespace.
func (v *versions) listable(ctx context.Context, namespace string) func(schema.GroupResource) bool {
	who, _ := genericapirequest.UserFrom(ctx)
	known := map[schema.GroupResource]bool{}
	return func(resource schema.GroupResource) bool {
		may, ok := known[resource]
		if !ok {
			decision, _, _ := v.authorizer.Authorize(ctx, authorizer.AttributesRecord{
				User: who, Verb: "list", Namespace: namespace, APIGroup: resource.Group, APIVersion: "*",
				Resource: resource.Resource, ResourceRequest: true,
			})
			may = decision == authorizer.DecisionAllow
			known[resource] = may
		}
		return may
	}
}
