package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group autoscaling.
func Group() kind.Group {
	return kind.Group{
		Name: autoscalingv2.GroupName,
		Versions: []kind.GroupVersion{
			{Version: "v2", AddToScheme: autoscalingv2.AddToScheme},
			{Version: "v1", AddToScheme: autoscalingv1.AddToScheme},
		},
		Kinds: []kind.Declaration{HorizontalPodAutoscalers()},
	}
}
