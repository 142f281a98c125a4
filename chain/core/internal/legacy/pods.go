package legacy

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedpolicyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/kind"
)

// Pods declares pods. The binder, which [Bindings] shares, assigns pods to nodes. The client reads
// disruption budgets before an eviction, and nodes for requests to their kubelets. If client is
// nil, evictions ignore disruption budgets and nodes are not looked up. The kubelet, which may be
// nil, is that of simulated nodes.
func Pods(
	binder *bindingREST, client kubernetes.Interface, kubelet Kubelet,
) *kind.Kind[*corev1.Pod] {
	var budgets typedpolicyv1.PodDisruptionBudgetsGetter
	var nodes typedcorev1.NodesGetter
	if client != nil {
		budgets, nodes = client.PolicyV1(), client.CoreV1()
	}
	return &kind.Kind[*corev1.Pod]{
		Plural:         "pods",
		ShortNames:     []string{"po"},
		Categories:     []string{"all"},
		Default:        defaultPod,
		PrepareCreate:  preparePod,
		PrepareUpdate:  preparePodUpdate,
		Validate:       validatePod,
		ValidateUpdate: validatePodUpdate,
		Table: kind.Table[*corev1.Pod]{
			Columns:    podColumns(),
			Row:        podRow,
			Conditions: podRowConditions,
		},
		Warnings: podWarnings,
		Status: &kind.Status[*corev1.Pod]{
			Prepare:     preparePodStatus,
			Validate:    validatePodStatus,
			Warnings:    podStatusWarnings,
			ResetFields: []string{"spec", "metadata.deletionTimestamp", "metadata.ownerReferences"},
		},
		Subresources: []kind.Subresource[*corev1.Pod]{
			{
				Name:     "ephemeralcontainers",
				Prepare:  prepareEphemeralContainers,
				Validate: validateEphemeralContainers,
			},
			{Name: "resize", Prepare: prepareResize, Validate: validateResize},
			{Name: "binding", New: func(s *genericregistry.Store) rest.Storage {
				binder.pods = s
				return podBindingREST{binder}
			}},
			{Name: "eviction", New: func(s *genericregistry.Store) rest.Storage {
				return &evictionREST{pods: s, budgets: budgets}
			}},
			{
				Name: "log",
				New: func(s *genericregistry.Store) rest.Storage {
					return &logREST{kubelets{s, nodes, kubelet}}
				},
			},
			{
				Name: "exec",
				New: func(s *genericregistry.Store) rest.Storage {
					return newExecREST(kubelets{s, nodes, kubelet})
				},
			},
			{
				Name: "attach",
				New: func(s *genericregistry.Store) rest.Storage {
					return newAttachREST(kubelets{s, nodes, kubelet})
				},
			},
			{Name: "portforward", New: func(s *genericregistry.Store) rest.Storage {
				return newPortForwardREST(kubelets{s, nodes, kubelet})
			}},
			{
				Name: "proxy",
				New: func(s *genericregistry.Store) rest.Storage {
					return newProxyREST(kubelets{s, nodes, kubelet})
				},
			},
		},
		Generation: true,
		Fields: map[string]func(*corev1.Pod) string{
			"spec.nodeName": func(p *corev1.Pod) string { return p.Spec.NodeName },
			// name of the field before v1
			"spec.host":               func(p *corev1.Pod) string { return p.Spec.NodeName },
			"spec.restartPolicy":      func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) },
			"spec.schedulerName":      func(p *corev1.Pod) string { return p.Spec.SchedulerName },
			"spec.serviceAccountName": func(p *corev1.Pod) string { return p.Spec.ServiceAccountName },
			"spec.hostNetwork": func(p *corev1.Pod) string {
				return strconv.FormatBool(p.Spec.HostNetwork)
			},
			"status.phase": func(p *corev1.Pod) string { return string(p.Status.Phase) },
			"status.podIP": podIP,
			// as in kube-apiserver, supported but always empty
			"status.podIPs":            func(*corev1.Pod) string { return "" },
			"status.nominatedNodeName": func(p *corev1.Pod) string { return p.Status.NominatedNodeName },
		},
		IndexedField: "spec.nodeName",
		GracePeriod:  podGracePeriod,
		Wrap:         func(s *kind.Storage) rest.Storage { return podStorage{s} },
		Quirks: kind.Quirks{
			NameOnUpdate:   true,
			StatusOnCreate: true, // only qosClass is kept
			ReturnDeleted:  true,
		},
	}
}

func defaultPod(p *corev1.Pod) {
	for _, key := range initContainerAnnotations {
		delete(p.Annotations, key)
	}
	podspec.SetPodDefaults(&p.Spec)
	syncPodIPs(&p.Status)
	quantities.RoundUp(p.Status.AllocatedResources)
	roundUp(p.Status.Resources)
	for _, s := range containerStatuses(&p.Status) {
		quantities.RoundUp(s.AllocatedResources)
		roundUp(s.Resources)
	}
}

// initContainerAnnotations duplicated, up to v1.7, the fields that replaced them. They are dropped.
var initContainerAnnotations = []string{
	"pod.alpha.kubernetes.io/init-containers", "pod.beta.kubernetes.io/init-containers",
	"pod.alpha.kubernetes.io/init-container-statuses",
	"pod.beta.kubernetes.io/init-container-statuses",
}

// syncPodIPs makes podIP equal to the first of podIPs. If the two differ, podIP wins, because an
// old kubelet sets only podIP.
func syncPodIPs(s *corev1.PodStatus) {
	if s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP) {
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	if s.PodIP = ""; len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

func roundUp(r *corev1.ResourceRequirements) {
	if r != nil {
		quantities.RoundUp(r.Limits, r.Requests)
	}
}

func podIP(p *corev1.Pod) string { return p.Status.PodIP }

func validatePod(_ context.Context, p *corev1.Pod) field.ErrorList {
	errs := podspec.ValidatePod(p, podspec.PodOptionsFor(p, nil))
	return append(errs, podspec.ValidateNewPod(p)...)
}

// podWarnings returns warnings about a new pod. There are none for an update: the client was warned
// when it created the pod.
func podWarnings(_ context.Context, p, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	return podspec.PodWarnings(p)
}

// podGracePeriod sets the grace period in which the kubelet stops a deleted pod. It is zero if the
// pod was never scheduled or has finished.
func podGracePeriod(ctx context.Context, p *corev1.Pod, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	var period int64
	switch asked := asked(ctx, options); {
	case p.Spec.NodeName == "" || isFinished(p):
	case asked != nil:
		period = *asked
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		period = 1
	}
	options.GracePeriodSeconds = &period
	return true
}

// isFinished reports whether all containers of the pod have terminated for good.
func isFinished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
