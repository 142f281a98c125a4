package storagemigration

import (
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/chain/core/kind"
)

func TestStorageVersionMigrations(t *testing.T) {
	t.Parallel()
	k := StorageVersionMigrations().(*kind.Kind[*storagemigrationv1.StorageVersionMigration])
	of := func(group, resource string) *storagemigrationv1.StorageVersionMigration {
		return &storagemigrationv1.StorageVersionMigration{Spec: storagemigrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: group, Resource: resource}}}
	}
	if errs := k.Validate(t.Context(), of("apps", "deployments")); errs != nil {
		t.Errorf("a valid migration: %v", errs)
	}
	if errs := k.Validate(t.Context(), of("A", "")); len(errs) != 2 {
		t.Errorf("a bad group and no resource: %v", errs)
	}
	if errs := k.ValidateUpdate(t.Context(), of("apps", "deployments"), of("apps", "replicasets")); len(errs) != 1 || errs[0].Field != "spec" {
		t.Errorf("another resource: %v", errs)
	}
}
