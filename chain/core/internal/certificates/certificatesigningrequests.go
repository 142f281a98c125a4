package certificates

import (
	"context"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kinproc/kinproc/chain/kind"
)

// CertificateSigningRequests declares certificatesigningrequests.
func CertificateSigningRequests() *kind.Kind[*certificatesv1.CertificateSigningRequest] {
	type T = *certificatesv1.CertificateSigningRequest
	return &kind.Kind[T]{
		Plural:        "certificatesigningrequests",
		ShortNames:    []string{"csr"},
		ClusterScoped: true,
		Name:          func(string, bool) []string { return nil },
		PrepareCreate: stampRequestor,
		PrepareUpdate: func(_ context.Context, r, old T) { r.Spec = old.Spec },
		Validate: func(_ context.Context, r T) field.ErrorList {
			return validateRequest(r, tolerated{})
		},
		ValidateUpdate: func(_ context.Context, r, old T) field.ErrorList {
			return validateChange(r, old, onlyMetadata)
		},
		Table: kind.Table[T]{
			Columns: []kind.Column{
				kind.NameColumn(),
				kind.AgeColumn(),
				{Name: "SignerName", Description: "Signer that is asked to issue the certificate."},
				{Name: "Requestor", Description: "User who made the request."},
				{Name: "RequestedDuration", Description: "How long the certificate should be valid."},
				{Name: "Condition", Description: "State of the request."},
			},
			Row: func(r T) []any {
				signer, lifetime := "<none>", "<none>"
				if r.Spec.SignerName != "" {
					signer = r.Spec.SignerName
				}
				if s := r.Spec.ExpirationSeconds; s != nil {
					lifetime = duration.HumanDuration(time.Duration(*s) * time.Second)
				}
				return []any{r.Name, kind.Age(r), signer, r.Spec.Username, lifetime, conditionCell(r)}
			},
		},
		Status: &kind.Status[T]{
			Prepare: func(_ context.Context, r, old T) {
				keepDecision(r, old)
				stampConditions(r, old)
			},
			Validate: func(_ context.Context, r, old T) field.ErrorList {
				return validateChange(r, old, certificate)
			},
			ResetFields: []string{"spec", "status.conditions"},
		},
		Subresources: []kind.Subresource[T]{{
			Name: "approval",
			Prepare: func(_ context.Context, r, old T) {
				stampConditions(r, old)
				conditions := r.Status.Conditions
				r.Spec = old.Spec
				old.Status.DeepCopyInto(&r.Status)
				r.Status.Conditions = conditions
			},
			Validate: func(_ context.Context, r, old T) field.ErrorList {
				return validateChange(r, old, decision)
			},
			ResetFields: []string{"spec", "status.certificate"},
		}},
		ResetFields: []string{"spec", "status"},
		Fields: map[string]func(T) string{"spec.signerName": func(r T) string {
			return r.Spec.SignerName
		}},
	}
}

// stampRequestor sets the requestor's fields of the spec from the authenticated user. What the
// client put there is discarded.
func stampRequestor(ctx context.Context, r *certificatesv1.CertificateSigningRequest) {
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
	u, ok := request.UserFrom(ctx)
	if !ok {
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups = u.GetName(), u.GetUID(), u.GetGroups()
	if extra := u.GetExtra(); len(extra) > 0 {
		r.Spec.Extra = make(map[string]certificatesv1.ExtraValue, len(extra))
		for key, values := range extra {
			r.Spec.Extra[key] = values
		}
	}
}

// keepDecision takes the conditions Approved and Denied from old, as long as r has as many of each.
// Validation refuses it if one was added or removed.
func keepDecision(r, old *certificatesv1.CertificateSigningRequest) {
	for _, t := range []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied,
	} {
		stored := ofType(old, t)
		if len(stored) != len(ofType(r, t)) {
			continue
		}
		for i := range r.Status.Conditions {
			if r.Status.Conditions[i].Type == t {
				r.Status.Conditions[i], stored = stored[0], stored[1:]
			}
		}
	}
}

func ofType(
	r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType,
) []certificatesv1.CertificateSigningRequestCondition {
	var list []certificatesv1.CertificateSigningRequestCondition
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			list = append(list, c)
		}
	}
	return list
}

// stampConditions fills in the times that the client left out. A condition whose status is
// unchanged keeps its transition time.
func stampConditions(r, old *certificatesv1.CertificateSigningRequest) {
	now := metav1.Now()
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, before := range ofType(old, c.Type) {
			if before.Status == c.Status && !before.LastTransitionTime.IsZero() {
				c.LastTransitionTime = before.LastTransitionTime
				break
			}
		}
	}
}

func conditionCell(r *certificatesv1.CertificateSigningRequest) string {
	has := func(t certificatesv1.RequestConditionType) bool { return len(ofType(r, t)) > 0 }
	words := []string{"Pending"}
	switch {
	case has(certificatesv1.CertificateDenied):
		words[0] = "Denied"
	case has(certificatesv1.CertificateApproved):
		words[0] = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		words = append(words, "Failed")
	}
	if len(r.Status.Certificate) > 0 {
		words = append(words, "Issued")
	}
	return strings.Join(words, ",")
}
