package legacy

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/features"
	"github.com/kinproc/kinproc/chain/kind"
)

const (
	nodeRolePrefix = "node-role.kubernetes.io/"
	nodeRoleLabel  = "kubernetes.io/role"
)

// Nodes declares nodes. Like kube-apiserver, it stores them as "minions", their original name. The
// kubelet, which may be nil, is that of simulated nodes.
func Nodes(kubelet Kubelet) *kind.Kind[*corev1.Node] {
	return &kind.Kind[*corev1.Node]{
		Plural:        "nodes",
		ShortNames:    []string{"no"},
		ClusterScoped: true,
		Default:       defaultNode,
		PrepareCreate: func(_ context.Context, n *corev1.Node) { dropUnsupported(n, &corev1.Node{}) },
		PrepareUpdate: func(_ context.Context, n, old *corev1.Node) { dropUnsupported(n, old) },
		Validate:      validateNode,
		ValidateUpdate: func(ctx context.Context, n, old *corev1.Node) field.ErrorList {
			return append(validateNode(ctx, n), validateNodeUpdate(ctx, n, old)...)
		},
		Table: kind.Table[*corev1.Node]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Status", Description: "Whether the node is ready and schedulable."},
				{Name: "Roles", Description: "Roles of the node."},
				kind.AgeColumn(),
				{Name: "Version", Description: "Version of the kubelet on the node."},
				{Name: "Internal-IP", Priority: 1, Description: "Address of the node inside the cluster."},
				{Name: "External-IP", Priority: 1, Description: "Address of the node outside the cluster."},
				{Name: "OS-Image", Priority: 1, Description: "Operating system of the node."},
				{Name: "Kernel-Version", Priority: 1, Description: "Kernel of the node."},
				{Name: "Container-Runtime", Priority: 1, Description: "Container runtime of the node."},
			},
			Row: nodeRow,
		},
		Warnings: warnNode,
		Status: &kind.Status[*corev1.Node]{
			Prepare: func(_ context.Context, n, old *corev1.Node) {
				if old.Status.Config == nil {
					n.Status.Config = nil
				}
				features.DropField(features.KubeletInUserNamespace,
					&n.Status.NodeInfo.RunningInUserNamespace,
					old.Status.NodeInfo.RunningInUserNamespace)
			},
			Validate: validateNodeUpdate,
		},
		Subresources: []kind.Subresource[*corev1.Node]{{
			Name: "proxy",
			New:  func(store *genericregistry.Store) rest.Storage { return &nodeProxy{store, kubelet} },
		}},
		Fields: map[string]func(*corev1.Node) string{
			"spec.unschedulable": func(n *corev1.Node) string { return fmt.Sprint(n.Spec.Unschedulable) },
		},
		Quirks: kind.Quirks{StoragePath: "minions", NameOnUpdate: true, StatusOnCreate: true},
	}
}

// defaultNode makes podCIDR agree with podCIDRs, its successor, and rounds up quantities. As in the
// conversion of kube-apiserver, podCIDR wins if the two differ.
func defaultNode(n *corev1.Node) {
	switch spec := &n.Spec; {
	case spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR):
		spec.PodCIDRs = []string{spec.PodCIDR}
	case len(spec.PodCIDRs) > 0:
		spec.PodCIDR = spec.PodCIDRs[0]
	}
	// Allocatable defaults to capacity.
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	quantities.RoundUp(n.Status.Capacity, n.Status.Allocatable)
}

// dropUnsupported clears unsupported fields, unless old uses them: dynamic kubelet configuration,
// which Kubernetes has removed, and those of features that are off.
func dropUnsupported(n, old *corev1.Node) {
	if old.Spec.ConfigSource == nil {
		n.Spec.ConfigSource = nil
	}
	if old.Status.Config == nil {
		n.Status.Config = nil
	}
	if old.Spec.PodPreemptionPolicy == nil {
		n.Spec.PodPreemptionPolicy = nil
	}
	if len(old.Status.DeclaredFeatures) == 0 && !features.Enabled(features.NodeDeclaredFeatures) {
		n.Status.DeclaredFeatures = nil
	}
}

func nodeRow(n *corev1.Node) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	kernel := orUnknown(n.Status.NodeInfo.KernelVersion)
	if arch := n.Status.NodeInfo.Architecture; arch != "" {
		kernel += " (" + arch + ")"
	}
	return []any{
		n.Name, status, nodeRoles(n), kind.Age(n), n.Status.NodeInfo.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP),
		nodeAddress(n, corev1.NodeExternalIP), orUnknown(n.Status.NodeInfo.OSImage), kernel,
		orUnknown(n.Status.NodeInfo.ContainerRuntimeVersion),
	}
}

func nodeRoles(n *corev1.Node) string {
	roles := sets.New[string]()
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, nodeRolePrefix); ok && role != "" {
			roles.Insert(role)
		} else if key == nodeRoleLabel && value != "" {
			roles.Insert(value)
		}
	}
	if len(roles) == 0 {
		return "<none>"
	}
	return strings.Join(sets.List(roles), ",")
}

func nodeAddress(n *corev1.Node, of corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == of {
			return a.Address
		}
	}
	return "<none>"
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}

func warnNode(_ context.Context, n, _ *corev1.Node) []string {
	var warnings []string
	if n.Spec.ConfigSource != nil {
		warnings = append(warnings,
			"spec.configSource: kubelets can no longer be configured through the API")
	}
	if n.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: deprecated and unused")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		warnings = append(warnings,
			validation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return warnings
}
