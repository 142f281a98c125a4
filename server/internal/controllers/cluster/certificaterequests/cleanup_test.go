package certificaterequests

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kinproc/kinproc/server/internal/auth/pki"
)

func TestOldRequests(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	ca, err := pki.New(pki.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	short, err := ca.CA.Client("jane", nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name      string
		condition certificatesv1.RequestConditionType // none if empty
		age       time.Duration
		issued    []byte
		old       bool
	}{
		{"pending for 23 h", "", 23 * time.Hour, nil, false},
		{"pending for 25 h", "", 25 * time.Hour, nil, true},
		{"denied for 59 min", certificatesv1.CertificateDenied, 59 * time.Minute, nil, false},
		{"denied for 61 min", certificatesv1.CertificateDenied, 61 * time.Minute, nil, true},
		{"failed for 61 min", certificatesv1.CertificateFailed, 61 * time.Minute, nil, true},
		{"approved for 61 min", certificatesv1.CertificateApproved, 61 * time.Minute, nil, false},
		{"issued for 59 min", certificatesv1.CertificateApproved, 59 * time.Minute, ca.Admin.Cert, false},
		{"issued for 61 min", certificatesv1.CertificateApproved, 61 * time.Minute, ca.Admin.Cert, true},
		{"expired", certificatesv1.CertificateApproved, 2 * time.Minute, short.Cert, true},
	} {
		began := metav1.NewTime(now)
		r := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: began},
			Status:     certificatesv1.CertificateSigningRequestStatus{Certificate: test.issued},
		}
		if test.condition != "" {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: test.condition, Status: corev1.ConditionTrue, LastUpdateTime: began,
			}}
		}
		if got := old(r, now.Add(test.age)); got != test.old {
			t.Errorf("%s: old is %t", test.name, got)
		}
	}
}
