package develop

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server/extension"
)

// ReadRegistration reads the manifests that register a server.
func ReadRegistration(file string) (*extension.Registration, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the registration: %w", err)
	}
	r := &extension.Registration{}
	for document, err := range documents.Split(data) {
		var kind metav1.TypeMeta
		if err == nil {
			err = documents.Decode(document, &kind)
		}
		if err != nil {
			return nil, fmt.Errorf("read the registration in %s: %w", file, err)
		}
		var object any
		switch kind.Kind {
		case "Service":
			r.Service = &corev1.Service{}
			object = r.Service
		case "EndpointSlice":
			r.EndpointSlice = &discoveryv1.EndpointSlice{}
			object = r.EndpointSlice
		case "APIService":
			a := &apiregistrationv1.APIService{}
			r.APIServices = append(r.APIServices, a)
			object = a
		default:
			return nil, fmt.Errorf("%s has a %q: a registration has a Service, APIServices, and perhaps an "+
				"EndpointSlice", file, kind.Kind)
		}
		if err := documents.DecodeStrict(document, object); err != nil {
			return nil, fmt.Errorf("read the registration in %s: %w", file, err)
		}
	}
	if r.Service == nil || len(r.APIServices) == 0 {
		return nil, fmt.Errorf("%s is not a registration: it has no Service or no APIService", file)
	}
	return r, nil
}
