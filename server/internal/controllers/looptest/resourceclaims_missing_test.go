package looptest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/controllers/volumes/resourceclaims"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestResourceClaimsOfMissingTemplate has a pod whose template does not exist, in a control plane
// that has never had a claim or a template.
func TestResourceClaimsOfMissingTemplate(t *testing.T) {
	t.Parallel()
	_, client := workloadtest.Run(t, []string{resourceclaims.Name})
	workloadtest.Until(t, func(ctx context.Context) string { // the service account exists
		_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: corev1.PodSpec{
				ResourceClaims: []corev1.PodResourceClaim{
					{Name: "g", ResourceClaimTemplateName: new("nope")},
				},
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	list := workloadtest.Await(t, "the warning", func(ctx context.Context) (*corev1.EventList, error) {
		return client.CoreV1().Events("default").List(ctx, metav1.ListOptions{
			FieldSelector: "reason=FailedResourceClaimCreation,involvedObject.name=p",
		})
	}, func(list *corev1.EventList) bool { return len(list.Items) > 0 })
	const want = `PodResourceClaim g: resource claim template "nope": ` +
		`resourceclaimtemplate.resource.k8s.io "nope" not found`
	if got := list.Items[0].Message; got != want {
		t.Errorf("the event says %q, want %q", got, want)
	}
}
