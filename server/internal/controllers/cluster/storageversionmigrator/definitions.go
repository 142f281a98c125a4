package storageversionmigrator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// fieldManager is that of the condition of CRDs in kube-controller-manager.
const fieldManager = "migration-runner-controller"

// definition is what is written of a CRD.
type definition struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Status struct {
		Conditions     []condition `json:"conditions"`
		StoredVersions []string    `json:"storedVersions,omitempty"`
	} `json:"status"`
}

type condition = apiextensionsv1.CustomResourceDefinitionCondition

// mark says in the CRD of a resource, if there is one, that a migration runs.
func (c *controller) mark(
	ctx context.Context, resource schema.GroupResource, message string,
) error {
	return c.changeDefinition(ctx, resource,
		func(_ *apiextensionsv1.CustomResourceDefinition, d *definition) {
			d.Status.Conditions = []condition{{
				Status: apiextensionsv1.ConditionTrue, Reason: "MigrationRunning", Message: message,
			}}
		})
}

// unmark says in the CRD of a resource, if there is one, that a migration has ended. Then only the
// storage version is stored, unless the CRD has changed since the migration began.
func (c *controller) unmark(
	ctx context.Context, resource schema.GroupResource, succeeded bool,
) error {
	return c.changeDefinition(ctx, resource,
		func(crd *apiextensionsv1.CustomResourceDefinition, d *definition) {
			same := slices.ContainsFunc(crd.Status.Conditions,
				func(c condition) bool {
					return c.Type == apiextensionsv1.StorageMigrating && c.ObservedGeneration == crd.Generation
				})
			reason, message := "MigrationFailed", "The migration has failed"
			switch {
			case succeeded && same:
				reason = "MigrationSucceeded"
				message = "The migration has succeeded and the stored versions have been updated"
			case succeeded:
				reason = "MigrationSucceeded"
				message = "The migration has succeeded but the stored versions have not been updated due " +
					"to a generation mismatch"
			}
			d.Status.Conditions = []condition{{
				Status: apiextensionsv1.ConditionFalse, Reason: reason, Message: message,
			}}
			if !succeeded || !same {
				return
			}
			for _, v := range crd.Spec.Versions {
				if v.Storage {
					d.Status.StoredVersions = []string{v.Name}
				}
			}
		})
}

// changeDefinition applies to the status of the CRD of a resource what change sets. A built-in
// resource has no CRD.
func (c *controller) changeDefinition(
	ctx context.Context, resource schema.GroupResource,
	change func(*apiextensionsv1.CustomResourceDefinition, *definition),
) error {
	name := resource.String()
	client := c.Client.Discovery().RESTClient()
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		data, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := json.Unmarshal(data, &crd); err != nil {
			return err
		}
		d := definition{TypeMeta: metav1.TypeMeta{
			APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition",
		}}
		// Nothing may change in between, because the condition says which generation it is about.
		d.Metadata.Name, d.Metadata.ResourceVersion = name, crd.ResourceVersion
		change(&crd, &d)
		for i := range d.Status.Conditions {
			is := &d.Status.Conditions[i]
			is.Type, is.LastTransitionTime = apiextensionsv1.StorageMigrating, metav1.Now()
			is.ObservedGeneration = crd.Generation
		}
		if data, err = json.Marshal(d); err != nil {
			return err
		}
		return client.Patch(types.ApplyPatchType).AbsPath(path, "status").
			Param("fieldManager", fieldManager).Param("force", "true").
			SetHeader("Accept", "application/json").Body(data).Do(ctx).Error()
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("say in the CRD %s that its objects are migrated: %w", name, err)
	}
	return nil
}
