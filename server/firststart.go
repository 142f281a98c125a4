package server

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"

	"github.com/kinproc/kinproc/chain/aggregator"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/controllers/flowcontrolbootstrap"
	"github.com/kinproc/kinproc/server/internal/controllers/tokentracking"
)

// A first start creates some 180 objects: namespaces, roles, flow schemas, APIServices and so on.
// Creating them through the API would take a tenth of a second of CPU time, most of it for the
// OpenAPI definitions from which managed fields are computed. So the kind engine prepares them, and
// they are written to etcd in a few transactions before anything is served. If etcd has some of
// them already, hooks create the missing ones.

// firstObject is an object of the first start together with its field manager.
type firstObject struct {
	object  kind.Object
	manager string
	// fields are the fields that the manager owns, if the kind engine cannot compute them.
	fields string
}

// fieldManager is the field manager of the API server's own writes.
const fieldManager = "kube-apiserver"

func (p *plane) firstObjects() ([]firstObject, error) {
	var all []firstObject
	add := func(object kind.Object) {
		all = append(all, firstObject{object: object, manager: fieldManager})
	}
	for _, name := range systemNamespaces() {
		add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	trusted, err := p.trust().ConfigMap()
	if err != nil {
		return nil, err
	}
	add(trusted)
	add(tokentracking.ConfigMap())
	policy, err := p.bootstrapPolicy()
	if err != nil {
		return nil, err
	}
	for _, o := range policy.ClusterRoles {
		add(o)
	}
	for _, o := range policy.ClusterRoleBindings {
		add(o)
	}
	for _, o := range policy.Roles {
		add(o)
	}
	for _, o := range policy.RoleBindings {
		add(o)
	}
	for _, o := range core.SystemPriorityClasses() {
		add(o)
	}
	for _, o := range aggregator.LocalAPIServices(p.chain.LocalGroupVersions()) {
		add(o)
	}
	for _, o := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		all = append(all, firstObject{
			object: o.DeepCopy(), manager: flowcontrolbootstrap.FieldManager,
		})
	}
	for _, o := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations,
		bootstrap.SuggestedPriorityLevelConfigurations) {
		all = append(all, firstObject{
			object: o.DeepCopy(), manager: flowcontrolbootstrap.FieldManager,
		})
	}
	service, err := p.kubernetesService()
	if err != nil || service.Leases != nil { // with leases, there are other servers' addresses
		return all, err
	}
	objects := service.FirstObjects()
	all = append(all, firstObject{objects.Service, fieldManager, objects.ServiceFields})
	add(allocation.NewAddress(service.ServiceIP, objects.Service))
	if objects.Endpoints != nil {
		add(objects.Endpoints)
		add(objects.Slice)
	}
	return all, nil
}

// prepareFirstObject returns a function that encodes an object as a create request would leave it
// in etcd.
func (p *plane) prepareFirstObject() (func(
	ctx context.Context, o firstObject,
) (key string, value []byte, err error), error) {
	scheme, err := core.Scheme()
	if err != nil {
		return nil, err
	}
	options, err := core.RESTOptions(p.storage)
	if err != nil {
		return nil, err
	}
	builtIn := kind.NewPreparer(scheme, options, core.Groups(core.Dependencies{})...)
	// The aggregator serves APIServices. To prepare new ones, the engine needs no more than this.
	apiServices := kind.NewPreparer(aggregatorscheme.Scheme, aggregator.RESTOptions(p.storage),
		kind.Group{
			Name: apiregistrationv1.GroupName,
			Kinds: []kind.Declaration{&kind.Kind[*apiregistrationv1.APIService]{
				Plural:        "apiservices",
				ClusterScoped: true,
				Name:          path.ValidatePathSegmentName,
				ResetFields:   []string{"status"}, // the aggregator sets it
			}},
		})
	return func(ctx context.Context, o firstObject) (string, []byte, error) {
		switch object := o.object.(type) {
		case *networkingv1.IPAddress: // the allocator has prepared it
			return builtIn.Encode(object)
		case *apiregistrationv1.APIService:
			return apiServices.Prepare(ctx, object, o.manager)
		case *flowcontrolv1.FlowSchema:
			if _, _, err := builtIn.Prepare(ctx, object, o.manager); err != nil {
				return "", nil, err
			}
			flowcontrolbootstrap.SetStatus(object)
			return builtIn.Encode(object)
		}
		return builtIn.PrepareOwned(ctx, o.object, o.manager, o.fields)
	}, nil
}

// maxOps is etcd's default limit of operations in a transaction.
const maxOps = 128

// writeFirstObjects writes the objects in transactions, each only if none of its objects exists. It
// reports whether it has written all of them.
func (p *plane) writeFirstObjects(ctx context.Context) (all bool, err error) {
	objects, err := p.firstObjects()
	if err != nil {
		return false, err
	}
	prepare, err := p.prepareFirstObject()
	if err != nil {
		return false, err
	}
	all = true
	for some := range slices.Chunk(objects, maxOps) {
		var ifs []clientv3.Cmp
		var puts []clientv3.Op
		for _, o := range some {
			key, value, err := prepare(ctx, o)
			if err != nil {
				return false, err
			}
			ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
			puts = append(puts, clientv3.OpPut(key, string(value)))
		}
		written, err := p.etcd.client.Txn(ctx).If(ifs...).Then(puts...).Commit()
		if err != nil {
			return false, fmt.Errorf("write the first objects: %w", err)
		}
		all = all && written.Succeeded
	}
	return all, nil
}
