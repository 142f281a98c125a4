package nodeauthorizer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server/internal/auth/rbacauthorizer"
)

const (
	userPrefix  = "system:node:"
	leasesSpace = "kube-node-lease"
)

// Authorizer allows kubelets what they need, as kube-apiserver's mode Node does. It never denies, and has no opinion about others.
type Authorizer struct {
	client kubernetes.Interface
	rules  []rbacv1.PolicyRule
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
)

// errNoRules is what SelfSubjectRulesReviews of nodes answer, in kube-apiserver's words since they are part of the answer.
var errNoRules = errors.New("node authorizer does not support user rule resolution")

// New makes an authorizer that reads with the client, whose user must be no kubelet, what belongs to a node.
func New(client kubernetes.Interface) *Authorizer {
	// What a kubelet's drivers publish is not in the role system:node.
	slices := rbacv1.PolicyRule{
		APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceslices"},
		Verbs: []string{"create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"},
	}
	return &Authorizer{client: client, rules: append(rbacauthorizer.NodeRules(), slices)}
}

// Authorize implements [authorizer.Authorizer].
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	node, ok := nodeName(attributes.GetUser())
	if !ok || !rbacauthorizer.Allows(attributes, a.rules) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	own, err := a.belongs(ctx, node, attributes)
	if err != nil && !apierrors.IsNotFound(err) {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("look up what belongs to node %s: %w", node, err)
	}
	if !own {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("that has nothing to do with node %q", node), nil
	}
	return authorizer.DecisionAllow, "", nil
}

// RulesFor implements [authorizer.RuleResolver]: what a kubelet may do depends on the pods, so that no list is complete.
func (a *Authorizer) RulesFor(_ context.Context, u user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, ok := nodeName(u); ok {
		return nil, nil, true, errNoRules
	}
	return nil, nil, false, nil
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

// cached lets the watch cache answer, at no cost for etcd.
var cached = metav1.GetOptions{ResourceVersion: "0"}

// belongs reports whether the request is about what belongs to the node, as far as this has to be so. Of what is written, only the
// NodeRestriction admission plugin sees what it says.
func (a *Authorizer) belongs(ctx context.Context, node string, r authorizer.Attributes) (bool, error) {
	resource := r.GetResource()
	if sub := r.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	if group := r.GetAPIGroup(); group != "" {
		resource += "." + group
	}
	creates := r.GetVerb() == "create"
	switch resource {
	case "nodes":
		return !r.IsReadOnly() || r.GetName() == node, nil
	case "pods":
		switch {
		case !r.IsReadOnly():
			return true, nil
		case r.GetName() != "":
			pod, err := a.client.CoreV1().Pods(r.GetNamespace()).Get(ctx, r.GetName(), cached)
			return err == nil && pod.Spec.NodeName == node, err
		}
		return selects(r, node), nil
	case "leases.coordination.k8s.io":
		return r.GetNamespace() == leasesSpace && (creates || r.GetName() == node), nil
	case "csinodes.storage.k8s.io":
		return creates || r.GetName() == node, nil
	case "secrets":
		// A kubelet reads and watches them one by one, by name.
		if own, err := a.usedByPods(ctx, node, r.GetNamespace(), "secrets", r.GetName()); own || err != nil {
			return own, err
		}
		return a.usedByVolumes(ctx, node, r.GetNamespace(), r.GetName())
	case "configmaps", "serviceaccounts", "serviceaccounts/token", "persistentvolumeclaims", "persistentvolumeclaims/status",
		"resourceclaims.resource.k8s.io":
		return a.usedByPods(ctx, node, r.GetNamespace(), r.GetResource(), r.GetName())
	case "persistentvolumes":
		if r.GetName() == "" {
			return false, nil
		}
		volume, err := a.client.CoreV1().PersistentVolumes().Get(ctx, r.GetName(), cached)
		if err != nil || volume.Spec.ClaimRef == nil {
			return false, err
		}
		return a.usedByPods(ctx, node, volume.Spec.ClaimRef.Namespace, "persistentvolumeclaims", volume.Spec.ClaimRef.Name)
	case "volumeattachments.storage.k8s.io":
		if r.GetName() == "" {
			return false, nil
		}
		attachment, err := a.client.StorageV1().VolumeAttachments().Get(ctx, r.GetName(), cached)
		return err == nil && attachment.Spec.NodeName == node, err
	case "resourceslices.resource.k8s.io":
		if creates || r.GetName() == "" {
			return creates || selects(r, node), nil
		}
		slice, err := a.client.ResourceV1().ResourceSlices().Get(ctx, r.GetName(), cached)
		return err == nil && ptr.Deref(slice.Spec.NodeName, "") == node, err
	case "podcertificaterequests.certificates.k8s.io":
		if creates || r.GetName() == "" {
			return creates || selects(r, node), nil
		}
		request, err := a.client.CertificatesV1().PodCertificateRequests(r.GetNamespace()).Get(ctx, r.GetName(), cached)
		return err == nil && string(request.Spec.NodeName) == node, err
	}
	return true, nil
}

// selects reports whether the request is for the objects of the node alone (KEP-4601).
func selects(r authorizer.Attributes, node string) bool {
	requirements, _ := r.GetFieldSelector() // without those that could not be read, more objects are selected
	return slices.Contains(requirements, fields.Requirement{Field: "spec.nodeName", Operator: selection.Equals, Value: node})
}
