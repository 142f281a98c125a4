package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kinproc/kinproc/server/auth/rbac"
)

const (
	userPrefix  = "system:node:"
	leasesSpace = "kube-node-lease"
)

// Pods finds what a node runs.
type Pods interface {
	// PodsOn are the pods of the namespace that are scheduled to the node.
	PodsOn(ctx context.Context, namespace, node string) ([]*corev1.Pod, error)
}

// Authorizer allows kubelets what they need. It never denies, and has no opinion about others.
type Authorizer struct {
	pods  Pods
	rules []rbacv1.PolicyRule
}

var _ authorizer.Authorizer = &Authorizer{}

// New makes an authorizer. Without pods, kubelets may read no secrets and the like.
func New(pods Pods) *Authorizer { return &Authorizer{pods: pods, rules: rbac.NodeRules()} }

// Authorize implements [authorizer.Authorizer].
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	node, ok := nodeName(attributes.GetUser())
	if !ok || !rbac.Allows(attributes, a.rules) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	own, err := a.belongs(ctx, node, attributes)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("look up the pods of node %s: %w", node, err)
	}
	if !own {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("the object has nothing to do with node %q", node), nil
	}
	return authorizer.DecisionAllow, "", nil
}

// ConditionsAwareAuthorize implements [authorizer.Authorizer]: there are no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

// EvaluateConditions implements [authorizer.Authorizer]: there are no conditions.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// nodeName is the node of a kubelet.
func nodeName(u user.Info) (string, bool) {
	if u == nil || !slices.Contains(u.GetGroups(), user.NodesGroup) {
		return "", false
	}
	name, ok := strings.CutPrefix(u.GetName(), userPrefix)
	return name, ok && name != ""
}

// belongs reports whether the request is about what belongs to the node, as far as this has to be so.
func (a *Authorizer) belongs(ctx context.Context, node string, r authorizer.Attributes) (bool, error) {
	resource := r.GetResource()
	if sub := r.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	if group := r.GetAPIGroup(); group != "" {
		resource += "." + group
	}
	switch resource {
	case "nodes", "nodes/status":
		return true, nil // which one is for the NodeRestriction admission plugin to say, as with pods
	case "leases.coordination.k8s.io":
		return r.GetNamespace() == leasesSpace && (r.GetVerb() == "create" || r.GetName() == node), nil
	case "csinodes.storage.k8s.io":
		return r.GetVerb() == "create" || r.GetName() == node, nil
	case "secrets", "configmaps":
		// A kubelet reads and watches them one by one, by name.
		return a.anyPod(ctx, node, r, func(p *corev1.Pod) bool { return uses(p, r.GetResource(), r.GetName()) })
	case "persistentvolumeclaims", "persistentvolumeclaims/status":
		return a.anyPod(ctx, node, r, func(p *corev1.Pod) bool { return uses(p, "persistentvolumeclaims", r.GetName()) })
	case "serviceaccounts", "serviceaccounts/token":
		return a.anyPod(ctx, node, r, func(p *corev1.Pod) bool { return p.Spec.ServiceAccountName == r.GetName() })
	case "resourceclaims.resource.k8s.io":
		return a.anyPod(ctx, node, r, func(p *corev1.Pod) bool { return uses(p, "resourceclaims", r.GetName()) })
	case "persistentvolumes", "volumeattachments.storage.k8s.io":
		// Only by way of claims and drivers, which this authorizer does not follow: roles may allow it.
		return false, nil
	}
	return true, nil
}

func (a *Authorizer) anyPod(ctx context.Context, node string, r authorizer.Attributes, f func(*corev1.Pod) bool) (bool, error) {
	if a.pods == nil || r.GetName() == "" || r.GetNamespace() == "" {
		return false, nil
	}
	pods, err := a.pods.PodsOn(ctx, r.GetNamespace(), node)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods, f), nil
}
