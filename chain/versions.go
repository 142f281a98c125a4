package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
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
	v.refuse(w, r, v.serve(w, r))
}

// ServeMoments serves [history.MomentsPath].
func (v *versions) ServeMoments(w http.ResponseWriter, r *http.Request) {
	v.refuse(w, r, v.moments(w, r))
}

// refuse answers with an error, if there is one.
func (v *versions) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		responsewriters.ErrorNegotiated(err, v.serializer, schema.GroupVersion{}, w, r)
	}
}

// onlyGet returns an error for another method.
func onlyGet(w http.ResponseWriter, r *http.Request, resource schema.GroupResource) error {
	if r.Method == http.MethodGet {
		return nil
	}
	w.Header().Set("Allow", http.MethodGet)
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, resource, "",
		"only GET is allowed", 0, false)
}

func (v *versions) moments(w http.ResponseWriter, r *http.Request) error {
	if err := onlyGet(w, r, schema.GroupResource{}); err != nil {
		return err
	}
	moments, err := v.storage.Moments(r.Context())
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	write(w, moments)
	return nil
}

func (v *versions) serve(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	resource := schema.GroupResource{}
	if ok {
		resource.Group, resource.Resource = info.APIGroup, info.Resource
	}
	if err := onlyGet(w, r, resource); err != nil {
		return err
	}
	if !ok || !info.IsResourceRequest || info.Subresource != "" {
		return apierrors.NewBadRequest("a history has a path such as " + history.Path +
			"/api/v1/namespaces/default/configmaps/limits")
	}
	o, err := history.ParseOptions(r.URL.Query())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := v.mayRead(ctx, info); err != nil {
		return err
	}
	of := etcdstore.VersionsOf{
		Resource: stored(resource), Namespace: info.Namespace, Name: info.Name, Before: o.Before,
		Limit: o.Limit,
	}
	if of.Labels, err = labels.Parse(o.Labels); err != nil {
		return apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	created := int64(0)
	if info.Namespace != "" {
		if created, err = v.storage.NamespaceSince(ctx, info.Namespace, 0); err != nil {
			return apierrors.NewInternalError(err)
		}
		since := v.since(ctx, info, created)
		of.Allowed = func(schema.GroupResource) (int64, bool) { return since, true }
	}
	isNamespace := resource == schema.GroupResource{Resource: "namespaces"}
	switch {
	case o.Contents && (!isNamespace || info.Name == ""):
		return apierrors.NewBadRequest("contents: only namespaces have contents")
	case o.Contents:
		of.Resource, of.Name = schema.GroupResource{}, ""
		of.Allowed = v.readable(ctx, info.Namespace, created)
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
	case found.Before != 0 || of.Before != 0: // there may be more, or has been
	case of.Name != "" && len(found.Versions) == 0 && found.Compacted:
		return apierrors.NewResourceExpired(fmt.Sprintf(
			"%s %q is not there, and older versions are no longer kept", resource, of.Name))
	case of.Name != "" && len(found.Versions) == 0:
		return apierrors.NewNotFound(resource, of.Name)
	}
	write(w, found)
	return nil
}

// write sends a history, or the moments.
func write(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer) // an error is the client's, which has gone
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
	write(w, &history.History{Revision: revision, Versions: []history.Version{*version}})
	return nil
}

// stored returns the resource as which objects are stored. Two groups have events.
func stored(resource schema.GroupResource) schema.GroupResource {
	if resource == (schema.GroupResource{Group: eventsv1.GroupName, Resource: "events"}) {
		resource.Group = ""
	}
	return resource
}

// slowest is how long a client that follows may take to receive a version. Meanwhile, the client of
// an etcd elsewhere collects those that follow.
const slowest = 30 * time.Second

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
	client := http.NewResponseController(w)
	if client.Flush() != nil {
		return nil // the client has gone
	}
	encoder := json.NewEncoder(w)
	_ = v.storage.FollowVersions(ctx, of, func(version history.Version) error {
		// An error says that there is no connection, as for requests in process.
		_ = client.SetWriteDeadline(time.Now().Add(slowest))
		defer func() { _ = client.SetWriteDeadline(time.Time{}) }()
		return errors.Join(encoder.Encode(version), client.Flush())
	}) // the client sees the stream end
	return nil
}

// mayRead returns an error unless the user may both get and list what a request is for. A history
// tells what neither does alone, such as which objects of a name there have been.
func (v *versions) mayRead(ctx context.Context, info *genericapirequest.RequestInfo) error {
	for _, verb := range []string{"get", "list"} {
		if verb == info.Verb {
			continue // as the request has been authorized
		}
		who, _ := genericapirequest.UserFrom(ctx)
		attributes := authorizer.AttributesRecord{
			User: who, Verb: verb, Namespace: info.Namespace, APIGroup: info.APIGroup,
			APIVersion: info.APIVersion, Resource: info.Resource, Name: info.Name,
			ResourceRequest: true, Path: info.Path,
		}
		decision, reason, err := v.authorizer.Authorize(ctx, attributes)
		switch {
		case decision == authorizer.DecisionAllow:
		case err != nil:
			return apierrors.NewInternalError(err)
		default:
			return responsewriters.ForbiddenStatusError(attributes, reason)
		}
	}
	return nil
}

// since returns the revision since which the user may see what a request is for: that at which the
// namespace was created, or 0 for those who may read the same in all namespaces. Whoever got the
// name of a deleted namespace has got nothing of what was in it.
func (v *versions) since(
	ctx context.Context, info *genericapirequest.RequestInfo, created int64,
) int64 {
	everywhere := *info
	everywhere.Verb, everywhere.Namespace = "", ""
	if v.mayRead(ctx, &everywhere) == nil {
		return 0
	}
	return created
}

// readable returns a function that reports whether the user may get and list a resource in a
// namespace, and since which revision.
func (v *versions) readable(
	ctx context.Context, namespace string, created int64,
) func(schema.GroupResource) (int64, bool) {
	type answer struct {
		since int64
		may   bool
	}
	known := map[schema.GroupResource]answer{}
	return func(resource schema.GroupResource) (int64, bool) {
		a, ok := known[resource]
		if !ok {
			info := &genericapirequest.RequestInfo{
				Namespace: namespace, APIGroup: resource.Group, APIVersion: "*",
				Resource: resource.Resource,
			}
			if a.may = v.mayRead(ctx, info) == nil; a.may {
				a.since = v.since(ctx, info, created)
			}
			known[resource] = a
		}
		return a.since, a.may
	}
}
