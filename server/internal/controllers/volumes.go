package controllers

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/server/internal/controllers/ephemeralvolumes"
	"github.com/kinproc/kinproc/server/internal/controllers/resourceclaims"
	"github.com/kinproc/kinproc/server/internal/controllers/volumebinding"
)

// volumes returns the control loops of volumes and of devices.
func volumes() []Controller {
	return []Controller{
		{
			Name: volumebinding.Name,
			Purpose: "binds claims to volumes, and simulates a provisioner for the class " +
				volumebinding.Class,
			alias:    "persistentvolume-binder",
			workload: true,
			after: []schema.GroupResource{
				corev1.Resource("persistentvolumeclaims"), corev1.Resource("persistentvolumes"),
			},
			new: func(d Dependencies) (Runner, error) {
				return volumebinding.New(d.as("persistentvolume-controller")), nil
			},
		},
		{
			Name:     ephemeralvolumes.Name,
			Purpose:  "makes the claims of the ephemeral volumes of pods",
			alias:    "ephemeral-volume",
			workload: true,
			after:    []schema.GroupResource{corev1.Resource("pods")},
			new: func(d Dependencies) (Runner, error) {
				return ephemeralvolumes.New(d.as("ephemeral_volume")), nil
			},
		},
		{
			Name:     resourceclaims.Name,
			Purpose:  "makes the ResourceClaims of pods, and frees those that no pod uses anymore",
			workload: true,
			// A pod may name a template that does not exist.
			after: []schema.GroupResource{
				corev1.Resource("pods"), resourcev1.Resource("resourceclaims"),
			},
			new: func(d Dependencies) (Runner, error) {
				return resourceclaims.New(d.as("resource_claim")), nil
			},
		},
	}
}
