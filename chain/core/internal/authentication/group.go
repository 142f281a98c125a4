package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group authentication.k8s.io. requests is the authenticator of the server's
// own requests. audiences are the server's audiences, the default for token reviews that name none.
func Group(requests authenticator.Request, audiences authenticator.Audiences) kind.Group {
	return kind.Group{
		Name:     authenticationv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: authenticationv1.AddToScheme}},
		Kinds: []kind.Declaration{
			TokenReviews(requests, audiences),
			SelfSubjectReviews(),
		},
	}
}

func extra(of map[string][]string) map[string]authenticationv1.ExtraValue {
	if len(of) == 0 {
		return nil
	}
	converted := make(map[string]authenticationv1.ExtraValue, len(of))
	for key, values := range of {
		converted[key] = values
	}
	return converted
}
