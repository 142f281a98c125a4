package server

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"

	"github.com/kinproc/kinproc/chain/aggregator"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/internal/allocation"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/clusterroleaggregation"
	"github.com/kinproc/kinproc/server/internal/controllers/flowcontrolbootstrap"
	"github.com/kinproc/kinproc/server/internal/controllers/tokentracking"
)

// A first start creates some 180 objects: namespaces, roles, flow schemas, APIServices and so on.
// Creating them through the API would take a tenth of a second of CPU time, most of it for the
// OpenAPI definitions from which managed fields are computed. So the kind engine prepares them, and
// they are written to etcd in a few transactions before anything is served. If etcd has some of
// them already, hooks create the missing ones.
//
// Most of the objects are the same in all control planes but for their UIDs and times, so a process
// prepares them once.

// fieldManager is the field manager of the API server's own writes.
const fieldManager = "kube-apiserver"

// preparer prepares objects of the built-in kinds.
var preparer = sync.OnceValues(func() (*kind.Preparer, error) {
	scheme, err := core.Scheme()
	if err != nil {
		return nil, err
	}
	return kind.NewPreparer(scheme, core.Groups(core.Dependencies{})...), nil
})

// apiServicePreparer prepares new APIServices. The aggregator serves them, so the kind engine has
// no more of them than this.
var apiServicePreparer = kind.NewPreparer(aggregatorscheme.Scheme, kind.Group{
	Name: apiregistrationv1.GroupName,
	Kinds: []kind.Declaration{&kind.Kind[*apiregistrationv1.APIService]{
		Plural:        "apiservices",
		ClusterScoped: true,
		Name:          path.ValidatePathSegmentName,
		ResetFields:   []string{"status"}, // the aggregator sets it
	}},
})

// commonObjects returns the prepared objects that all control planes have. They must be copied and
// renewed.
var commonObjects = sync.OnceValues(func() ([]kind.Object, error) {
	var objects []kind.Object
	for _, name := range systemNamespaces() {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, o := range core.SystemPriorityClasses() {
		objects = append(objects, o)
	}
	if err := prepareAll(objects, fieldManager); err != nil {
		return nil, err
	}
	var flow []kind.Object
	for _, o := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		flow = append(flow, o.DeepCopy())
	}
	for _, o := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations,
		bootstrap.SuggestedPriorityLevelConfigurations) {
		flow = append(flow, o.DeepCopy())
	}
	return append(objects, flow...), prepareAll(flow, flowcontrolbootstrap.FieldManager)
})

// aggregatedPolicy and plainPolicy return the prepared roles and bindings, with the rules of
// aggregated roles and without them. They must be copied and renewed.
var (
	aggregatedPolicy = sync.OnceValues(func() ([]kind.Object, error) {
		return preparePolicy(rbacauthorizer.Bootstrap())
	})
	plainPolicy = sync.OnceValues(func() ([]kind.Object, error) {
		return preparePolicy(rbacauthorizer.Bootstrap().Unaggregate())
	})
)

// shareObjects makes what all starts of a process share and what needs no etcd. If that fails, the
// start fails too, as soon as it needs the objects.
func (p *plane) shareObjects() {
	_, err := core.Scheme()
	if o := p.options; err != nil || o.DataDir != "" || o.From != nil || len(o.EtcdServers) > 0 {
		return // the objects probably exist
	}
	_, _ = commonObjects()
	_, _ = p.preparedPolicy()
}

func preparePolicy(policy *rbacauthorizer.Policy) ([]kind.Object, error) {
	var objects []kind.Object
	for _, o := range policy.ClusterRoles {
		objects = append(objects, o)
	}
	for _, o := range policy.ClusterRoleBindings {
		objects = append(objects, o)
	}
	for _, o := range policy.Roles {
		objects = append(objects, o)
	}
	for _, o := range policy.RoleBindings {
		objects = append(objects, o)
	}
	return objects, prepareAll(objects, fieldManager)
}

func prepareAll(objects []kind.Object, manager string) error {
	builtIn, err := preparer()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := builtIn.Prepare(context.Background(), o, manager); err != nil {
			return err
		}
	}
	return nil
}

// apiServices holds the prepared APIServices of group versions, which must be copied and renewed.
var apiServices sync.Map // by schema.GroupVersion

func apiService(gv schema.GroupVersion) (*apiregistrationv1.APIService, error) {
	prepared, ok := apiServices.Load(gv)
	if !ok {
		service := aggregator.LocalAPIService(gv)
		err := apiServicePreparer.Prepare(context.Background(), service, fieldManager)
		if err != nil {
			return nil, err
		}
		prepared, _ = apiServices.LoadOrStore(gv, service)
	}
	service := prepared.(*apiregistrationv1.APIService).DeepCopy()
	kind.Renew(service)
	for i := range service.Status.Conditions {
		service.Status.Conditions[i].LastTransitionTime = service.CreationTimestamp
	}
	return service, nil
}

// firstObjects returns the objects of the first start, prepared, but for the APIServices.
func (p *plane) firstObjects(ctx context.Context) ([]kind.Object, error) {
	common, err := commonObjects()
	if err != nil {
		return nil, err
	}
	policy, err := p.preparedPolicy()
	if err != nil {
		return nil, err
	}
	var all []kind.Object
	for _, prepared := range slices.Concat(common, policy) {
		o := prepared.DeepCopyObject().(kind.Object)
		kind.Renew(o)
		if schema, ok := o.(*flowcontrolv1.FlowSchema); ok {
			flowcontrolbootstrap.SetStatus(schema)
		}
		all = append(all, o)
	}
	trusted, err := p.trust().ConfigMap()
	if err != nil {
		return nil, err
	}
	own := []kind.Object{trusted, tokentracking.ConfigMap()}
	service, err := p.kubernetesService()
	if err != nil {
		return nil, err
	}
	if service.Leases != nil { // there are other servers' addresses
		return append(all, own...), prepareAll(own, fieldManager)
	}
	objects := service.FirstObjects()
	if objects.Endpoints != nil {
		own = append(own, objects.Endpoints, objects.Slice)
	}
	if err := prepareAll(own, fieldManager); err != nil {
		return nil, err
	}
	builtIn, err := preparer()
	if err != nil {
		return nil, err
	}
	err = builtIn.PrepareOwned(ctx, objects.Service, fieldManager, objects.ServiceFields)
	if err != nil {
		return nil, err
	}
	// The allocator has prepared the address.
	return append(append(all, own...), objects.Service,
		allocation.NewAddress(service.ServiceIP, objects.Service)), nil
}

// preparedPolicy returns the prepared roles and bindings; see [plane.bootstrapPolicy].
func (p *plane) preparedPolicy() ([]kind.Object, error) {
	aggregates, err := p.enables(clusterroleaggregation.Name)
	if err != nil {
		return nil, err
	}
	if aggregates {
		return aggregatedPolicy()
	}
	return plainPolicy()
}

// encoder returns a function that encodes a prepared object.
func (p *plane) encoder() (func(o kind.Object) (key string, value []byte, err error), error) {
	builtIn, err := preparer()
	if err != nil {
		return nil, err
	}
	options, err := core.RESTOptions(p.storage)
	if err != nil {
		return nil, err
	}
	serviceOptions := aggregator.RESTOptions(p.storage)
	return func(o kind.Object) (string, []byte, error) {
		if _, ok := o.(*apiregistrationv1.APIService); ok {
			return apiServicePreparer.Encode(o, serviceOptions)
		}
		return builtIn.Encode(o, options)
	}, nil
}
