package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group scheduling.k8s.io.
func Group() kind.Group {
	return kind.Group{
		Name: schedulingv1.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v1", AddToScheme: schedulingv1.AddToScheme},
			{Version: "v1beta1", AddToScheme: addBeta, OffByDefault: true},
			{Version: "v1alpha3", AddToScheme: schedulingv1alpha3.AddToScheme, OffByDefault: true},
		},
		Kinds: []kind.Declaration{
			PriorityClasses(),
			Workloads(),
			PodGroups(),
			CompositePodGroups(),
		},
	}
}

// addBeta registers the v1beta1 types except PriorityClass, which is no longer served in v1beta1.
func addBeta(scheme *runtime.Scheme) error {
	gv := schedulingv1beta1.SchemeGroupVersion
	scheme.AddKnownTypes(gv,
		&schedulingv1beta1.Workload{}, &schedulingv1beta1.WorkloadList{},
		&schedulingv1beta1.PodGroup{}, &schedulingv1beta1.PodGroupList{},
	)
	metav1.AddToGroupVersion(scheme, gv)
	return nil
}
