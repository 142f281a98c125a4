package quota

import (
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/ptr"
)

func services(list lists) quota.Evaluator {
	gvr := corev1.SchemeGroupVersion.WithResource("services")
	count := generic.ObjectCountQuotaResourceNameFor(gvr.GroupResource())
	return &evaluator[*corev1.Service]{
		resource: gvr.GroupResource(),
		list:     list(gvr),
		handles:  onWrite,
		limits: func(name corev1.ResourceName) bool {
			switch name {
			case count, corev1.ResourceServices, corev1.ResourceServicesNodePorts,
				corev1.ResourceServicesLoadBalancers:
				return true
			}
			return false
		},
		usage: func(s *corev1.Service) corev1.ResourceList {
			number := func(n int) apiresource.Quantity {
				return *apiresource.NewQuantity(int64(n), apiresource.DecimalSI)
			}
			nodePorts, balancers := 0, 0
			switch s.Spec.Type {
			case corev1.ServiceTypeNodePort:
				nodePorts = len(s.Spec.Ports)
			case corev1.ServiceTypeLoadBalancer:
				balancers = 1
				nodePorts = len(s.Spec.Ports)
				if !ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true) {
					nodePorts = 0
					for _, p := range s.Spec.Ports {
						if p.NodePort != 0 {
							nodePorts++
						}
					}
				}
			}
			return corev1.ResourceList{
				count:                                number(1),
				corev1.ResourceServices:              number(1),
				corev1.ResourceServicesNodePorts:     number(nodePorts),
				corev1.ResourceServicesLoadBalancers: number(balancers),
			}
		},
	}
}
