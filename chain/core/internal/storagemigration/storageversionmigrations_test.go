package storagemigration

import (
	"strings"
	"testing"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type migration = storagemigrationv1beta1.StorageVersionMigration

func TestStorageVersionMigrations(t *testing.T) {
	t.Parallel()
	k := StorageVersionMigrations()
	of := func(group, resource string) *migration {
		return &migration{Spec: storagemigrationv1beta1.StorageVersionMigrationSpec{
			Resource: metav1.GroupResource{Group: group, Resource: resource},
		}}
	}
	if errs := k.Validate(t.Context(), of("apps", "deployments")); errs != nil {
		t.Errorf("a valid migration: %v", errs)
	}
	if errs := k.Validate(t.Context(), of("A", "")); len(errs) != 2 {
		t.Errorf("a bad group and no resource: %v", errs)
	}
	if errs := k.ValidateUpdate(t.Context(), of("apps", "deployments"),
		of("apps", "replicasets")); len(errs) != 1 || errs[0].Field != "spec" {
		t.Errorf("another resource: %v", errs)
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	condition := func(name string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: name, Status: status}
	}
	for want, conditions := range map[string][]metav1.Condition{
		"Unknown": {
			condition("Running", metav1.ConditionFalse), condition("Other", metav1.ConditionTrue),
		},
		"Succeeded": {
			condition("Running", metav1.ConditionFalse), condition("Succeeded", metav1.ConditionTrue),
		},
	} {
		if got := state(&storagemigrationv1beta1.StorageVersionMigrationStatus{
			Conditions: conditions,
		}); got != want {
			t.Errorf("%v: state %q, want %q", conditions, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	k := StorageVersionMigrations()
	// status returns a migration with the given resource version and true conditions.
	status := func(version string, conditions ...string) *migration {
		m := &migration{
			Status: storagemigrationv1beta1.StorageVersionMigrationStatus{ResourceVersion: version},
		}
		for _, c := range conditions {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
				Type:               c,
				Status:             metav1.ConditionTrue,
				Reason:             "R",
				LastTransitionTime: metav1.Now(),
			})
		}
		return m
	}
	for _, c := range []struct {
		name      string
		now, then *migration
		want      string // fields of the errors
	}{
		{"begins", status("7", "Running"), status(""), ""},
		{"ends well", status("7", "Succeeded"), status("7", "Running"), ""},
		{"ends badly", status("7", "Failed"), status("7", "Running"), ""},
		{"no version yet", status("", "Running"), status(""), ""},
		{"loses the version", status("", "Running"), status("7"), "resourceVersion"},
		{"no number", status("x"), status(""), "resourceVersion"},
		{"other version", status("8"), status("7"), "resourceVersion"},
		{"both ends", status("7", "Succeeded", "Failed"), status("7"), "conditions"},
		{"ended and runs", status("7", "Succeeded", "Running"), status("7"), ""},
		{"no success after all", status("7"), status("7", "Succeeded"), "conditions"},
		{"tries again", status("7", "Running"), status("7", "Failed"), "conditions"},
	} {
		var got []string
		for _, err := range k.Status.Validate(t.Context(), c.now, c.then) {
			got = append(got, strings.TrimPrefix(err.Field, "status."))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: errors in %v, want %q", c.name, got, c.want)
		}
	}
}
