package metricsapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// syncTimeout is how long a request waits for the first objects.
const syncTimeout = 10 * time.Second

// ServeHTTP implements http.Handler. Only the aggregator gets here, which has authenticated and
// authorized the user.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), syncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), a.synced...) {
		refuse(w, apierrors.NewServiceUnavailable("the metrics APIs have not read all pods yet"))
		return
	}
	answer, err := a.answer(r)
	if err != nil {
		refuse(w, err)
		return
	}
	write(w, http.StatusOK, answer)
}

// answer returns what a request gets.
func (a *API) answer(r *http.Request) (any, error) {
	if document, ok := documents()[r.URL.Path]; ok {
		return document, nil
	}
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(words) < 3 || words[0] != "apis" {
		return nil, unknown(r)
	}
	gv, rest := schema.GroupVersion{Group: words[1], Version: words[2]}, words[3:]
	if r.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(gv.WithResource("metrics").GroupResource(),
			strings.ToLower(r.Method))
	}
	if len(rest) == 0 {
		return a.discover(gv, r)
	}
	switch gv {
	case resourceMetrics:
		return a.resource(r, rest)
	case customMetrics:
		return a.custom(r, rest)
	case externalMetrics:
		return a.external(r, rest)
	}
	return nil, unknown(r)
}

// documents returns the OpenAPI documents, which describe nothing. The aggregator complains if
// there are none.
func documents() map[string]any {
	return map[string]any{
		"/openapi/v2": map[string]any{
			"swagger": "2.0", "paths": map[string]any{},
			"info": map[string]any{"title": "metrics of kinproc", "version": "v0"},
		},
		"/openapi/v3": map[string]any{"paths": map[string]any{}},
	}
}

func unknown(r *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(r.Method),
		schema.GroupResource{}, "", "no metrics are served at "+r.URL.Path, 0, true)
}

func refuse(w http.ResponseWriter, err error) {
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) {
		refused = apierrors.NewInternalError(err)
	}
	status := refused.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	write(w, int(status.Code), status)
}

func write(w http.ResponseWriter, code int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data) // the client is gone
}

// asTable reports whether a client prefers a table, as kubectl get does.
func asTable(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	return strings.Contains(first, "as=Table")
}

// discover returns the resources of a group version.
func (a *API) discover(gv schema.GroupVersion, r *http.Request) (any, error) {
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(), APIResources: []metav1.APIResource{},
	}
	switch gv {
	case resourceMetrics:
		verbs := metav1.Verbs{"get", "list"}
		list.APIResources = append(list.APIResources,
			metav1.APIResource{Name: "nodes", Kind: "NodeMetrics", Verbs: verbs},
			metav1.APIResource{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: verbs},
		)
	case customMetrics:
		for _, name := range a.podMetricNames() {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: "pods/" + name, Kind: "MetricValueList", Namespaced: true, Verbs: metav1.Verbs{"get"},
			})
		}
	case externalMetrics:
		for _, name := range a.externalNames() {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: name, Kind: "ExternalMetricValueList", Namespaced: true, Verbs: metav1.Verbs{"get"},
			})
		}
	default:
		return nil, unknown(r)
	}
	return list, nil
}
