package extensions

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// target is the server as the delegation target of the link before it.
type target struct {
	*genericapiserver.GenericAPIServer
	handler http.Handler
}

// UnprotectedHandler implements genericapiserver.DelegationTarget.
func (t target) UnprotectedHandler() http.Handler { return t.handler }

// Target implements the interface link of package chain.
func (s *Server) Target() genericapiserver.DelegationTarget {
	server := s.UnprotectedHandler()
	lister := s.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister()
	documents := &documents{next: server, definitions: lister}
	return target{s.GenericAPIServer, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, openAPIRoot) {
			documents.ServeHTTP(w, r)
			return
		}
		s.awaitDefinition(r.Context())
		server.ServeHTTP(w, r)
	})}
}

// awaitDefinition waits until the informer has the CRD of the kind that a request is for, as
// etcd has it, unless the informer knows already that the kind is served. Because the names of a
// CRD are accepted and the CRD is established in one step, a client can learn of that
// before the informer does.
func (s *Server) awaitDefinition(ctx context.Context) {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || info.APIGroup == apiextensionsv1.GroupName {
		return
	}
	name := info.Resource + "." + info.APIGroup
	lister := s.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister()
	known := func() (revision int64, served bool) {
		definition, err := lister.Get(name)
		if err != nil {
			return 0, false
		}
		revision, _ = strconv.ParseInt(definition.ResourceVersion, 10, 64)
		return revision, apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) ||
			apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.NamesAccepted)
	}
	seen, served := known()
	if served {
		return
	}
	revisions, err := s.backend.Revisions(ctx, definitionsPath+"/"+name)
	if err != nil || revisions[0] <= seen {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	_ = s.discovery.wait(ctx, func() bool { // if it takes longer, the request is answered without
		seen, _ = known()
		return seen >= revisions[0]
	})
}

// definitionsPath is the path of the CRDs below the storage prefix.
const definitionsPath = apiextensionsv1.GroupName + "/customresourcedefinitions"
