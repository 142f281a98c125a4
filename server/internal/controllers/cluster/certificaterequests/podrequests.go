package certificaterequests

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/server/internal/controllers/loop"
)

// PodCleanupName is the name of the loop in kube-controller-manager.
const PodCleanupName = "podcertificaterequest-cleaner-controller"

// podKept is how long requests of kubelets are kept, as in kube-controller-manager. A kubelet gets
// its certificate sooner.
const podKept = 15 * time.Minute

// PodCleanup is the loop that deletes old requests for certificates of pods.
func PodCleanup() loop.Loop {
	return loop.Loop{
		Name:    PodCleanupName,
		Purpose: "deletes PodCertificateRequests after 15 minutes",
		Gate:    features.PodCertificateRequest,
		After:   []schema.GroupResource{certificatesv1.Resource("podcertificaterequests")},
		Begin: func(c *loop.Controller) loop.Work {
			requests := c.Informer(&certificatesv1beta1.PodCertificateRequest{})
			return loop.Work{
				Watches: []loop.Watch{
					loop.On(requests, func(old, r *certificatesv1beta1.PodCertificateRequest) {
						if old == nil {
							c.Enqueue(loop.Key(r))
						}
					}),
				},
				Sync: func(ctx context.Context, key string) (time.Duration, error) {
					r := loop.Get[certificatesv1beta1.PodCertificateRequest](requests, key)
					if r == nil {
						return 0, nil
					}
					if left := loop.Left(r.CreationTimestamp.Time, podKept, time.Now()); left > 0 {
						return left, nil
					}
					err := c.Client.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(ctx, r.Name,
						metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
					return 0, loop.IgnoreChanged(err)
				},
			}
		},
	}
}
