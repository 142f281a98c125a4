package auth

import (
	"crypto/x509"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
)

const (
	// verifiedFor is how long a client certificate is not verified again. kube-apiserver remembers
	// tokens for as long.
	verifiedFor = 10 * time.Second
	// verifiedCount limits how many certificates are remembered.
	verifiedCount = 1024
)

// verified remembers the users of client certificates. All requests of a connection present the
// same certificate, and to verify it takes longer than the rest of the authentication.
type verified struct {
	authenticator.Request
	responses *cache.LRUExpireCache // by *x509.Certificate
}

func newVerified(certificates authenticator.Request) *verified {
	return &verified{certificates, cache.NewLRUExpireCache(verifiedCount)}
}

// AuthenticateRequest implements authenticator.Request.
func (v *verified) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	if response, ok := v.responses.Get(leaf); ok {
		return response.(*authenticator.Response), true, nil
	}
	response, ok, err := v.Request.AuthenticateRequest(r)
	if ok && err == nil {
		// An intermediate certificate may expire too.
		ends := slices.MinFunc(r.TLS.PeerCertificates, func(a, b *x509.Certificate) int {
			return a.NotAfter.Compare(b.NotAfter)
		}).NotAfter
		v.responses.Add(leaf, response, min(verifiedFor, time.Until(ends)))
	}
	return response, ok, err
}

// named authenticates only requests that name a user in a header, and so does not verify the
// certificates of other clients as those of a proxy.
type named struct {
	authenticator.Request
	headers headerrequest.StringSliceProvider
}

// AuthenticateRequest implements authenticator.Request.
func (n named) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if !slices.ContainsFunc(n.headers.Value(), func(h string) bool { return r.Header.Get(h) != "" }) {
		return nil, false, nil
	}
	return n.Request.AuthenticateRequest(r)
}
