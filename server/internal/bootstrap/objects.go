package bootstrap

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	flowobjects "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"

	"github.com/kinproc/kinproc/chain/aggregator"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
	"github.com/kinproc/kinproc/server/internal/bootstrap/flowcontrolbootstrap"
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

// The prepared objects that all control planes have. They must be copied and renewed; see
// [renewed].
var (
	namespaceObjects = sync.OnceValues(func() ([]kind.Object, error) {
		var objects []kind.Object
		for _, name := range systemNamespaces() {
			objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return prepared(fieldManager, objects...)
	})
	priorityClasses = sync.OnceValues(func() ([]kind.Object, error) {
		var objects []kind.Object
		for _, o := range core.SystemPriorityClasses() {
			objects = append(objects, o)
		}
		return prepared(fieldManager, objects...)
	})
	flowObjects = sync.OnceValues(func() ([]kind.Object, error) {
		var objects []kind.Object
		for _, o := range slices.Concat(flowobjects.MandatoryFlowSchemas,
			flowobjects.SuggestedFlowSchemas) {
			objects = append(objects, o.DeepCopy())
		}
		for _, o := range slices.Concat(flowobjects.MandatoryPriorityLevelConfigurations,
			flowobjects.SuggestedPriorityLevelConfigurations) {
			objects = append(objects, o.DeepCopy())
		}
		return prepared(flowcontrolbootstrap.FieldManager, objects...)
	})
)

// policies holds the roles and bindings, with the rules of aggregated roles and without them.
var policies sync.Map // by policyKey, of what sync.OnceValues returns

// policyKey says what a policy depends on.
type policyKey struct {
	aggregates bool
	gates      string
}

func policy(aggregates bool) func() ([]kind.Object, error) {
	return func() ([]kind.Object, error) {
		once, _ := policies.LoadOrStore(policyKey{aggregates, rbacauthorizer.Gates()},
			sync.OnceValues(func() ([]kind.Object, error) {
				p := rbacauthorizer.Bootstrap()
				if !aggregates {
					p.Unaggregate()
				}
				return preparedPolicy(p)
			}))
		return once.(func() ([]kind.Object, error))()
	}
}

// Share makes what all starts of a process share and what needs no etcd. If the storage is not
// empty, the first objects probably exist. If Share fails, the start fails too, as soon as it needs
// the objects.
func Share(empty, aggregates bool) {
	_, err := core.Scheme()
	if err != nil || !empty {
		return
	}
	for _, make := range []func() ([]kind.Object, error){
		namespaceObjects, priorityClasses, flowObjects, policy(aggregates),
	} {
		_, _ = make()
	}
}

// renewed returns a function that copies shared objects and renews the copies.
func renewed(shared func() ([]kind.Object, error)) func() ([]kind.Object, error) {
	return func() ([]kind.Object, error) {
		objects, err := shared()
		if err != nil {
			return nil, err
		}
		var all []kind.Object
		for _, prepared := range objects {
			o := prepared.DeepCopyObject().(kind.Object)
			kind.Renew(o)
			all = append(all, o)
		}
		return all, nil
	}
}

// flowControl returns the first objects of API Priority and Fairness.
func flowControl() ([]kind.Object, error) {
	objects, err := renewed(flowObjects)()
	for _, o := range objects {
		if schema, ok := o.(*flowcontrolv1.FlowSchema); ok {
			flowcontrolbootstrap.SetStatus(schema)
		}
	}
	return objects, err
}

func preparedPolicy(policy *rbacauthorizer.Policy) ([]kind.Object, error) {
	var objects []kind.Object
	for _, o := range policy.Objects() {
		objects = append(objects, o.(kind.Object))
	}
	return prepared(fieldManager, objects...)
}

// prepared prepares objects for their storage.
func prepared(manager string, objects ...kind.Object) ([]kind.Object, error) {
	builtIn, err := preparer()
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err := builtIn.Prepare(context.Background(), o, manager); err != nil {
			return nil, err
		}
	}
	return objects, nil
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

// encoder returns a function that encodes a prepared object.
func (b *Bootstrap) encoder() (func(o kind.Object) (key string, value []byte, err error), error) {
	builtIn, err := preparer()
	if err != nil {
		return nil, err
	}
	options, err := core.RESTOptions(b.config.Storage)
	if err != nil {
		return nil, err
	}
	serviceOptions := aggregator.RESTOptions(b.config.Storage)
	return func(o kind.Object) (string, []byte, error) {
		if _, ok := o.(*apiregistrationv1.APIService); ok {
			return apiServicePreparer.Encode(o, serviceOptions)
		}
		return builtIn.Encode(o, options)
	}, nil
}
