package admission

import "k8s.io/apiserver/pkg/admission"

// idle stands in for the plugins of the feature gate GenericWorkload, which is off.
// PodGroupProtection would protect pod groups that have pods, PodGroupWorkloadExists would reject
// pod groups without a workload, and JobValidation would keep the parallelism of a gang's job
// unchanged. The plugins are registered because the flags must accept their names.
type idle struct{}

func newIdle() admission.Interface { return idle{} }

func (idle) Handles(admission.Operation) bool { return false }
