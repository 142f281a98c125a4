package admission

import "k8s.io/apiserver/pkg/admission"

// podGroupProtection (PodGroupProtection) would keep pod groups that have pods. Pod groups are of the feature GenericWorkload, which is
// off: there is nothing to do, but the flags know the name.
type podGroupProtection struct{}

func newPodGroupProtection() admission.Interface { return podGroupProtection{} }

func (podGroupProtection) Handles(admission.Operation) bool { return false }
