package admission

import "k8s.io/apiserver/pkg/admission"

// idle stands for the plugins of the feature GenericWorkload, which is off: PodGroupProtection would keep pod groups that have pods,
// PodGroupWorkloadExists refuse pod groups without a workload, JobValidation let a gang's job keep its parallelism. The flags know
// their names.
type idle struct{}

func newIdle() admission.Interface { return idle{} }

func (idle) Handles(admission.Operation) bool { return false }
