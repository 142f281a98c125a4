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

// Authorizer allows kubelets the requests that they need, like kube-apiserver's Node mode. It never
// denies a request, and has no opinion on requests of other users.
type Authorizer struct {
	client kubernetes.Interface
	rules  []rbacv1.PolicyRule
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
)

// errNoRules is part of the response to SelfSubjectRulesReviews of nodes, so its text is the same
// as kube-apiserver's.
var errNoRules = errors.New("node authorizer does not support user rule resolution")

// New returns an authorizer that reads the objects related to a node with the given client. The
// client's user must not be a kubelet.
func New(client kubernetes.Interface) *Authorizer {
	// The role system:node does not include the ResourceSlices that a kubelet's drivers publish.
	slices := rbacv1.PolicyRule{
		APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceslices"},
		Verbs: []string{
			"create", "get", "list", "watch", "update", "patch", "delete", "deletecollection",
		},
	}
	return &Authorizer{client: client, rules: append(rbacauthorizer.NodeRules(), slices)}
}

// Authorize implements [authorizer.Authorizer].
func (a *Authorizer) Authorize(
	ctx context.Context, attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	node, ok := nodeName(attributes.GetUser())
	if !ok || !rbacauthorizer.Allows(attributes, a.rules) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	own, err := a.belongs(ctx, node, attributes)
	if err != nil && !apierrors.IsNotFound(err) {
		return authorizer.DecisionNoOpinion, "",
			fmt.Errorf("look up the objects related to node %s: %w", node, err)
	}
	if !own {
		return authorizer.DecisionNoOpinion,
			fmt.Sprintf("the requested object is not related to node %q", node), nil
	}
	return authorizer.DecisionAllow, "", nil
}

// RulesFor implements [authorizer.RuleResolver]. The permissions of a kubelet depend on its pods,
// so no list of rules is complete.
func (a *Authorizer) RulesFor(
	_ context.Context, u user.Info, _ string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, ok := nodeName(u); ok {
		return nil, nil, true, errNoRules
	}
	return nil, nil, false, nil
}

// ConditionsAwareAuthorize implements [authorizer.Authorizer]. There are no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(
	ctx context.Context, attributes authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

// EvaluateConditions implements [authorizer.Authorizer]. There are no conditions.
func (a *Authorizer) EvaluateConditions(
	context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// nodeName returns the node name of a kubelet, and whether the user is a kubelet.
func nodeName(u user.Info) (string, bool) {
	if u == nil || !slices.Contains(u.GetGroups(), user.NodesGroup) {
		return "", false
	}
	name, ok := strings.CutPrefix(u.GetName(), userPrefix)
	return name, ok && name != ""
}

// cached reads from the watch cache instead of etcd.
var cached = metav1.GetOptions{ResourceVersion: "0"}

// belongs reports whether the requested object is related to the node, or is of a kind for which
// that is not required. It does not see the content of written objects, which the NodeRestriction
// admission plugin checks.
func (a *Authorizer) belongs(
	ctx context.Context, node string, r authorizer.Attributes,
) (bool, error) {
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
		// A kubelet reads and watches secrets individually, by name.
		if own, err := a.usedByPods(ctx, node, r.GetNamespace(), "secrets", r.GetName()); own ||
			err != nil {
			return own, err
		}
		return a.usedByVolumes(ctx, node, r.GetNamespace(), r.GetName())
	case "configmaps", "serviceaccounts", "serviceaccounts/token", "persistentvolumeclaims",
		"persistentvolumeclaims/status",
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
		return a.usedByPods(ctx, node, volume.Spec.ClaimRef.Namespace, "persistentvolumeclaims",
			volume.Spec.ClaimRef.Name)
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
		request, err := a.client.CertificatesV1().PodCertificateRequests(r.GetNamespace()).Get(ctx,
			r.GetName(), cached)
		return err == nil && string(request.Spec.NodeName) == node, err
	}
	return true, nil
}

// selects reports whether the request's field selector selects only objects of the node (KEP-4601).
func selects(r authorizer.Attributes, node string) bool {
	requirements, _ := r.GetFieldSelector() // ignoring invalid requirements only widens the selection
	return slices.Contains(requirements,
		fields.Requirement{Field: "spec.nodeName", Operator: selection.Equals, Value: node})
}
