package conformance_test

import (
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/servertest"
)

// An event can be written through /apis (events.k8s.io) and through /api (core). Neither root knows
// the versions of the other, so a write through one drops the managed fields entries of the other.
func TestManagersOfAnEventEndAtTheOtherRoot(t *testing.T) {
	t.Parallel()
	client, err := kubernetes.NewForConfig(
		servertest.Run(t, servertest.WithoutControllers).RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "x"},
		EventTime:           metav1.NowMicro(),
		Reason:              "R",
		Action:              "A",
		Type:                "Normal",
		ReportingController: "example.com/c",
		ReportingInstance:   "i",
	}
	event, err = client.EventsV1().Events("default").Create(t.Context(), event,
		metav1.CreateOptions{FieldManager: "creator"})
	if err != nil {
		t.Fatal(err)
	}
	if m := event.ManagedFields; len(m) != 1 || m[0].APIVersion != "events.k8s.io/v1" {
		t.Fatalf("managers of the new event: %v", m)
	}
	patch := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	patched, err := client.CoreV1().Events("default").Patch(t.Context(), "x", types.MergePatchType,
		patch, metav1.PatchOptions{FieldManager: "patcher"})
	if err != nil {
		t.Fatal(err)
	}
	if m := patched.ManagedFields; len(m) != 1 || m[0].Manager != "patcher" ||
		m[0].APIVersion != "v1" {
		t.Errorf("managers after a patch of the core event: %v", m)
	}
}
