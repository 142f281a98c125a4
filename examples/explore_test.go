package examples_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/examples/stores"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
	"github.com/kinproc/kinproc/server/servertest/explore"
)

// storesTest is a test with Stores that are created, changed and deleted.
func storesTest(m stores.Mistakes) explore.Test {
	return explore.Test{
		InBubbles: true,
		Prepare: func(t explore.TB, s *server.Server) {
			servertest.CRDs(t, s, servertest.YAML(stores.CRD))
			servertest.Apply(t, s, "", servertest.Objects(
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "backups"}},
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stores"}}))
		},
		Controller: stores.Operator(m),
		Act: func(t explore.TB, config *rest.Config) {
			all := dynamic.NewForConfigOrDie(config).
				Resource(stores.Kind.GroupVersion().WithResource("stores")).Namespace("default")
			patch := func(spec string) {
				_, err := all.Patch(t.Context(), "db", types.MergePatchType, []byte(spec),
					metav1.PatchOptions{})
				if err != nil {
					t.Fatalf("patch: %v", err)
				}
				t.Idle()
			}
			servertest.Apply(t, servertest.ForConfig(config), "", servertest.YAML(twoStores))
			t.Idle()
			patch(`{"spec":{"version":"2"}}`)
			patch(`{"spec":{"replicas":1}}`)
			patch(`{"spec":{"replicas":2}}`)
			if err := all.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
				t.Fatalf("delete: %v", err)
			}
			t.Idle()
		},
	}
}

const twoStores = `
apiVersion: example.com/v1
kind: Store
metadata: {name: db}
spec: {replicas: 2, version: "1"}
---
apiVersion: example.com/v1
kind: Store
metadata: {name: web}
spec: {replicas: 1, version: "1"}
`

// TestExploreFindsMistakes looks for a finding of each mistake that is planted in the operator.
//
// Neither this test nor the next one is parallel: each uses all processors, and other tests would
// have to wait.
func TestExploreFindsMistakes(t *testing.T) {
	findings := explore.Find(t, fewWithRace(storesTest(stores.All)))
	for _, f := range findings {
		t.Log(f.Report)
	}
	const tooOften = "stale-restart-after-create-persistentvolumeclaims-db-1-in-act-4" +
		"-as-after-patch-stores-db-in-act-3"
	mistakes := []struct{ field, name, report string }{
		{"HalfDone", "crash-after-create-secrets-db", "- configmaps default/db"},
		{"TrustsCache", tooOften, "persistentvolumeclaims default/db-1 was deleted 2 times"},
		{"TrustsCache", tooOften, "The history of persistentvolumeclaims default/db-1:\n"},
		{"ForgetsConflict", "conflict-at-update-configmaps-stores", "-   .data.db: yes"},
		{"TrustsDeletion", "missed-delete-stores-web-in-act-5", "+ configmaps backups/default-web"},
		{"Insists", "lose-answer-to-create-services-db", "does not become idle"},
		{"Overwrites", "overwrite-at-update-configmaps-backups-default-db-in-act-2",
			"a change that the controller had not seen"},
		{"TrustsUpdate", "missed-patch-stores-db-in-act-2", "-   .status.version: 2"},
	}
	if race {
		mistakes = mistakes[:1]
	}
	for _, mistake := range mistakes {
		found := slices.ContainsFunc(findings, func(f explore.Finding) bool {
			return f.Name == mistake.name && strings.Contains(f.Report, mistake.report)
		})
		if !found {
			t.Errorf("the mistake %s was not found by %s", mistake.field, mistake.name)
		}
	}
}

// TestExploreFindsNothing explores the operator without a mistake.
func TestExploreFindsNothing(t *testing.T) {
	explore.Run(t, fewWithRace(storesTest(stores.Mistakes{})))
}

// fewWithRace restricts a test with the race detector to the first disturbances, because each takes
// several times as long.
func fewWithRace(test explore.Test) explore.Test {
	if race {
		test.Max = 30
	}
	return test
}
