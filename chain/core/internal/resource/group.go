package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/chain/kind"
)

// NamespaceLabels returns the labels of a namespace. They decide whether claims in the namespace
// may have admin access to devices; a nil function allows admin access everywhere.
type NamespaceLabels func(ctx context.Context, namespace string) (map[string]string, error)

// Group returns the API group resource.k8s.io.
func Group(labels NamespaceLabels, auth authorizer.UnconditionalAuthorizer) kind.Group {
	return kind.Group{
		Name: resourcev1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1", AddToScheme: resourcev1.AddToScheme},
			{Version: "v1beta2", AddToScheme: resourcev1beta2.AddToScheme, OffByDefault: true},
			{Version: "v1beta1", AddToScheme: resourcev1beta1.AddToScheme, OffByDefault: true},
			{Version: "v1alpha3", AddToScheme: resourcev1alpha3.AddToScheme, OffByDefault: true},
		},
		Kinds: []kind.Declaration{
			DeviceClasses(),
			ResourceClaims(labels, auth),
			ResourceClaimTemplates(labels),
			ResourceSlices(),
			DeviceTaintRules(),
			ResourcePoolStatusRequests(),
		},
	}
}
