package conformance_test

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/admission"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestMetadataOfUpdates has the kinds that kube-apiserver lets have, by an update, what none but custom resources has from the beginning.
func TestMetadataOfUpdates(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.Admission = admission.NewOptions()
		o.Admission.DisablePlugins = []string{"ServiceAccount"}
	})
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	resources := createAll(t, s)

	for _, tt := range []struct{ field, patch, accepted string }{
		{"metadata.generateName", `{"metadata":{"generateName":"Bad_"}}`, "certificatesigningrequests clusterrolebindings clusterroles " +
			"cronjobs crontabs csidrivers customresourcedefinitions daemonsets deployments deviceclasses devicetaintrules events horizontalpodautoscalers leases " +
			"networkpolicies podcertificaterequests poddisruptionbudgets podtemplates priorityclasses replicasets replicationcontrollers resourcequotas resourceslices " +
			"rolebindings roles servicecidrs services statefulsets"},
		{"metadata.finalizers[0]", `{"metadata":{"finalizers":["a"]}}`, "apiservices crontabs customresourcedefinitions events leases " +
			"mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations poddisruptionbudgets runtimeclasses " +
			"validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations"},
	} {
		t.Run(tt.field, func(t *testing.T) {
			t.Parallel()
			var accepted []string
			for _, obj := range objects(t) {
				r := resources[obj.GroupVersionKind()]
				if r.Group == "events.k8s.io" { // judges finalizers, while the same events in the core group may have any
					continue
				}
				_, err := client.Resource(obj.GroupVersionKind().GroupVersion().WithResource(r.Name)).Namespace(obj.GetNamespace()).
					Patch(t.Context(), obj.GetName(), types.MergePatchType, []byte(tt.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				switch {
				case err == nil:
					accepted = append(accepted, r.Name)
				case !apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid) || !strings.Contains(err.Error(), tt.field):
					t.Errorf("%s: %v", r.Name, err)
				}
			}
			slices.Sort(accepted)
			if got := strings.Join(slices.Compact(accepted), " "); got != tt.accepted {
				t.Errorf("accepted by\n%s, want\n%s", got, tt.accepted)
			}
		})
	}
}
