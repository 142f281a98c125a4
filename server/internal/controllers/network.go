package controllers

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/controllers/endpoints"
	"github.com/kinproc/kinproc/server/internal/controllers/endpointslicemirroring"
	"github.com/kinproc/kinproc/server/internal/controllers/endpointslices"
)

// network returns the control loops of endpoints. The Service default/kubernetes and its endpoints,
// which always exist, start none of them.
func network() []Controller {
	return []Controller{
		{
			Name:     endpointslices.Name,
			Purpose:  "keeps the EndpointSlices of Services that select pods",
			alias:    "endpointslice",
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("services")},
			new: func(d Dependencies) (Runner, error) {
				return endpointslices.New(d.as(endpointslices.Component)), nil
			},
		},
		{
			Name:     endpoints.Name,
			Purpose:  "keeps the Endpoints of Services that select pods",
			alias:    "endpoint",
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("services"), corev1.Resource("endpoints")},
			new: func(d Dependencies) (Runner, error) {
				return endpoints.New(d.as(endpoints.Component)), nil
			},
		},
		{
			Name:     endpointslicemirroring.Name,
			Purpose:  "mirrors Endpoints of Services without selectors to EndpointSlices",
			alias:    "endpointslicemirroring",
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("endpoints")},
			new: func(d Dependencies) (Runner, error) {
				return endpointslicemirroring.New(d.as(endpointslicemirroring.Component)), nil
			},
		},
	}
}
