package server

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/registry/generic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"

	"github.com/kinproc/kinproc/chain/aggregator"
	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/internal/controllers/flowcontrolbootstrap"
)

// A first start makes some 180 objects: namespaces, roles, flow schemas, APIServices and so on. Through the API that is a tenth of a second
// of CPU, most of it for the managed fields, whose type converter reads the OpenAPI definitions of all kinds. So they are written to etcd as
// the API would have left them, in a few transactions, before anything is served. The hooks that ensure them then find them in place; on an
// etcd that has some of them nothing is written here, and the hooks make what is missing.

// firstObject is an object of the first start.
type firstObject struct {
	resource schema.GroupResource
	object   kind.Object
	manager  string // its field manager
}

// fieldManager is the manager of what the API server writes.
const fieldManager = "kube-apiserver"

func (p *plane) firstObjects() ([]firstObject, error) {
	var all []firstObject
	add := func(group, resource, manager string, object kind.Object) {
		all = append(all, firstObject{schema.GroupResource{Group: group, Resource: resource}, object, manager})
	}
	for _, name := range systemNamespaces() {
		add("", "namespaces", fieldManager, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	policy, err := p.bootstrapPolicy()
	if err != nil {
		return nil, err
	}
	const rbacGroup = "rbac.authorization.k8s.io"
	for _, o := range policy.ClusterRoles {
		add(rbacGroup, "clusterroles", fieldManager, o)
	}
	for _, o := range policy.ClusterRoleBindings {
		add(rbacGroup, "clusterrolebindings", fieldManager, o)
	}
	for _, o := range policy.Roles {
		add(rbacGroup, "roles", fieldManager, o)
	}
	for _, o := range policy.RoleBindings {
		add(rbacGroup, "rolebindings", fieldManager, o)
	}
	for _, o := range core.SystemPriorityClasses() {
		add("scheduling.k8s.io", "priorityclasses", fieldManager, o)
	}
	const flowGroup = "flowcontrol.apiserver.k8s.io"
	for _, o := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		add(flowGroup, "flowschemas", flowcontrolbootstrap.FieldManager, o.DeepCopy())
	}
	for _, o := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations) {
		add(flowGroup, "prioritylevelconfigurations", flowcontrolbootstrap.FieldManager, o.DeepCopy())
	}
	for _, o := range aggregator.LocalAPIServices(p.chain.LocalGroupVersions()) {
		add(apiregistrationv1.GroupName, "apiservices", fieldManager, o)
	}
	return all, nil
}

// maxOps is how many operations etcd takes in a transaction.
const maxOps = 128

// writeFirstObjects writes the objects, each transaction only if none of its objects is there.
func (p *plane) writeFirstObjects(ctx context.Context) error {
	objects, err := p.firstObjects()
	if err != nil {
		return err
	}
	scheme, err := core.Scheme()
	if err != nil {
		return err
	}
	builtIn, err := core.RESTOptions(p.storage)
	if err != nil {
		return err
	}
	apiServices := aggregator.RESTOptions(p.storage)
	var ifs []clientv3.Cmp
	var puts []clientv3.Op
	commit := func() error {
		if len(puts) == 0 {
			return nil
		}
		_, err := p.etcd.client.Txn(ctx).If(ifs...).Then(puts...).Commit()
		ifs, puts = nil, nil
		return err
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for _, o := range objects {
		types, resources := scheme, generic.RESTOptionsGetter(builtIn)
		if o.resource.Group == apiregistrationv1.GroupName {
			types, resources = aggregatorscheme.Scheme, apiServices
		}
		key, value, err := o.encode(types, resources, now)
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.resource, o.object.GetName(), err)
		}
		ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		puts = append(puts, clientv3.OpPut(key, string(value)))
		if len(puts) == maxOps {
			if err := commit(); err != nil {
				return fmt.Errorf("write the first objects: %w", err)
			}
		}
	}
	if err := commit(); err != nil {
		return fmt.Errorf("write the first objects: %w", err)
	}
	return nil
}

// encode makes of the object what a create request would have left in etcd.
func (o firstObject) encode(scheme *runtime.Scheme, resources generic.RESTOptionsGetter, now metav1.Time) (key string, value []byte, err error) {
	scheme.Default(o.object)
	apiVersion, err := o.apiVersion(scheme)
	if err != nil {
		return "", nil, err
	}
	if err := o.fillIn(apiVersion, now); err != nil {
		return "", nil, err
	}
	options, err := resources.GetRESTOptions(o.resource, o.object)
	if err != nil {
		return "", nil, err
	}
	value, err = runtime.Encode(options.StorageConfig.Codec, o.object)
	parts := []string{options.StorageConfig.Prefix, options.ResourcePrefix}
	if ns := o.object.GetNamespace(); ns != "" {
		parts = append(parts, ns)
	}
	return strings.Join(append(parts, o.object.GetName()), "/"), value, err
}

func (o firstObject) apiVersion(scheme *runtime.Scheme) (string, error) {
	kinds, _, err := scheme.ObjectKinds(o.object)
	if err != nil {
		return "", err
	}
	for _, gvk := range kinds {
		if gvk.Version != runtime.APIVersionInternal {
			return gvk.GroupVersion().String(), nil
		}
	}
	return "", fmt.Errorf("%T is registered as an internal version only", o.object)
}

// fillIn does what the API server does with a new object's metadata, and what the strategies of these kinds do besides.
func (o firstObject) fillIn(apiVersion string, now metav1.Time) error {
	if ns, ok := o.object.(*corev1.Namespace); ok {
		ns.Labels = map[string]string{corev1.LabelMetadataName: ns.Name}
	}
	fields, err := json.Marshal(ownedFields(o.object))
	if err != nil {
		return err
	}
	o.object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager:    o.manager,
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: apiVersion,
		Time:       &now,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(string(fields)),
	}})
	o.object.SetUID(uuid.NewUUID())
	o.object.SetCreationTimestamp(now)
	switch obj := o.object.(type) {
	case *corev1.Namespace:
		obj.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		obj.Status.Phase = corev1.NamespaceActive
	default:
		if strings.HasPrefix(apiVersion, bootstrapGenerationGroup) || o.resource.Resource == "priorityclasses" {
			o.object.SetGeneration(1)
		}
	}
	return nil
}

// bootstrapGenerationGroup is the group whose kinds count generations.
const bootstrapGenerationGroup = "flowcontrol.apiserver.k8s.io/"

// fieldSet is a set of fields in the form of metadata.managedFields.
type fieldSet map[string]any

// ownedFields are the fields that the writer of a new object owns: those that are set, but for the metadata other than labels and
// annotations, and the status.
func ownedFields(obj kind.Object) fieldSet {
	set := fieldSet{}
	meta := fieldSet{}
	for name, entries := range map[string]map[string]string{"f:labels": obj.GetLabels(), "f:annotations": obj.GetAnnotations()} {
		if len(entries) > 0 {
			meta[name] = fieldsOf(reflect.ValueOf(entries), false)
		}
	}
	if len(meta) > 0 {
		set["f:metadata"] = meta
	}
	v := reflect.ValueOf(obj).Elem()
	for i := range v.NumField() {
		switch v.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			addField(set, v.Type().Field(i), v.Field(i), false)
		}
	}
	return set
}

func addField(set fieldSet, f reflect.StructField, v reflect.Value, added bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if v.IsZero() && strings.Contains(options, "omitempty") {
		return
	}
	if fields := fieldsOf(v, added); fields != nil {
		set["f:"+name] = fields
	}
}

// fieldsOf are the fields below a value. Lists are atomic in all of these kinds, and so are role references. A struct is a field itself
// (".") if it was added, by a pointer above it, and is not merely a part of what an empty object has too.
func fieldsOf(v reflect.Value, added bool) fieldSet {
	set := fieldSet{}
	switch v.Kind() {
	case reflect.Slice:
		if v.IsNil() {
			return nil
		}
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return fieldsOf(v.Elem(), true)
	case reflect.Map:
		set["."] = fieldSet{}
		for _, key := range v.MapKeys() {
			set["f:"+key.String()] = fieldSet{}
		}
	case reflect.Struct:
		if v.Type().Name() == "RoleRef" {
			return set
		}
		for i := range v.NumField() {
			addField(set, v.Type().Field(i), v.Field(i), added)
		}
		if added {
			set["."] = fieldSet{}
		}
		if len(set) == 0 {
			return nil
		}
	}
	return set
}
