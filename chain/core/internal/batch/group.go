package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/kinproc/kinproc/chain/kind"
)

// Group returns the API group batch.
func Group() kind.Group {
	return kind.Group{
		Name:     batchv1.GroupName,
		Versions: []kind.GroupVersion{{Version: "v1", AddToScheme: batchv1.AddToScheme}},
		Kinds:    []kind.Declaration{CronJobs(), Jobs()},
	}
}
