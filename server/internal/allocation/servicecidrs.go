package allocation

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

const (
	cidrsPath = "/servicecidrs"
	// DefaultCIDRName is the name of the ServiceCIDR with the blocks that the server was started
	// with.
	DefaultCIDRName = "kubernetes"
	// cidrManager is the field manager of the status of the default ServiceCIDR in kube-apiserver.
	cidrManager = "kubernetes-service-cidr-controller"
)

// EnsureServiceCIDR creates the default ServiceCIDR, ready for use, if it does not exist. An
// existing one that differs from the options is not changed, because addresses may be in use.
func (a *Allocator) EnsureServiceCIDR(ctx context.Context) error {
	store := a.store
	// A read is cheap, but a create would be a transaction in etcd's log even if the object exists.
	err := store.cidrs.Get(ctx, cidrsPath+"/"+DefaultCIDRName, storage.GetOptions{},
		&networkingv1.ServiceCIDR{})
	if err == nil {
		return nil
	}
	if !storage.IsNotFound(err) {
		return fmt.Errorf("get the default ServiceCIDR: %w", err)
	}
	c := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: DefaultCIDRName},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: a.cidrs},
	}
	rest.FillObjectMetaSystemFields(c)
	spec := managed(c.CreationTimestamp, networkingv1.SchemeGroupVersion.String(),
		`{"f:spec":{"f:cidrs":{}}}`)
	status := managed(c.CreationTimestamp, networkingv1.SchemeGroupVersion.String(),
		`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},`+
			`"f:lastTransitionTime":{},"f:message":{},"f:status":{},"f:type":{}}}}}`)
	status.Manager, status.Operation, status.Subresource = cidrManager,
		metav1.ManagedFieldsOperationApply, "status"
	c.ManagedFields = []metav1.ManagedFieldsEntry{status, spec}
	c.Status.Conditions = []metav1.Condition{{
		Type:               networkingv1.ServiceCIDRConditionReady,
		Status:             metav1.ConditionTrue,
		Message:            "created from the service CIDRs in the server's configuration",
		LastTransitionTime: metav1.NewTime(c.CreationTimestamp.Time),
	}}
	err = store.cidrs.Create(ctx, cidrsPath+"/"+c.Name, c, nil, 0)
	if err != nil && !storage.IsExist(err) {
		return fmt.Errorf("create the default ServiceCIDR: %w", err)
	}
	return nil
}
