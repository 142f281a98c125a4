package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// explainCauses replaces what the rows of objects say by what the objects say.
func (s *Server) explainCauses(ctx context.Context, causes []cause) {
	left := reasonsExplained
	for i := range causes {
		c := &causes[i]
		reasons := c.Reasons
		c.Reasons = nil
		for _, r := range reasons {
			one := r.Objects[0]
			k := kind{Group: one.Group, Version: one.Version, Resource: one.Resource}
			if left > 0 && r.State != terminating && isWatched(k) {
				left--
				object, err := s.dynamic.Resource(k.resource()).Namespace(one.Inside).
					Get(ctx, one.Name, metav1.GetOptions{})
				if err == nil {
					r.Why, r.Message = explain(*object, r.Why)
				}
			}
			c.merge(r)
		}
		c.sort()
	}
}

// explain says why an object is not well in a few words, and what else it says about that. Without
// a better reason, the few words are those of its row.
func explain(object unstructured.Unstructured, row string) (why, message string) {
	waits := ""
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		containers, _, _ := unstructured.NestedSlice(object.Object, "status", list)
		for _, each := range containers {
			container, _ := each.(map[string]any)
			why, message := explainContainer(container)
			if why != "" {
				return why, message
			}
			name, _ := container["name"].(string)
			_, runs, _ := unstructured.NestedMap(container, "state", "running")
			if ready, _ := container["ready"].(bool); runs && !ready && list == "containerStatuses" {
				waits = cmp.Or(waits, fmt.Sprintf("container %s runs and is not ready", name))
			}
		}
	}
	if waits != "" {
		return waits, ""
	}
	for _, c := range conditionsOf(object) {
		bad := c.Status == "False" || c.Type == "ReplicaFailure" || c.Type == "Failed"
		switch {
		case !bad || c.Message == "":
		case c.Type == "PodScheduled" && c.Reason == "Unschedulable":
			return "cannot be scheduled", c.Message
		default:
			return row, c.Message
		}
	}
	return row, ""
}

// explainContainer says why a container does not run, if it tells.
func explainContainer(status map[string]any) (why, message string) {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(status, path...)
		return value
	}
	name, image := text("name"), text("image")
	waiting, message := text("state", "waiting", "reason"), text("state", "waiting", "message")
	switch waiting {
	case "", "ContainerCreating", "PodInitializing":
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable":
		if message == fmt.Sprintf("Back-off pulling image %q", image) {
			message = "" // which says no more
		}
		return fmt.Sprintf("image %s cannot be pulled", image), message
	case "InvalidImageName", "ErrInvalidImageName":
		return fmt.Sprintf("%q is not the name of an image", image), message
	case "CrashLoopBackOff":
		// The message has the back-off and the UID of the pod.
		message = text("lastState", "terminated", "message")
		if ended := explainEnd(name, status, "lastState"); ended != "" {
			return ended + ", again and again", message
		}
		return fmt.Sprintf("container %s ends again and again", name), message
	default:
		return fmt.Sprintf("container %s: %s", name, waiting), message
	}
	if ended := explainEnd(name, status, "state"); ended != "" {
		return ended, text("state", "terminated", "message")
	}
	return "", ""
}

// explainEnd says how a container ended, unless it succeeded or has not ended.
func explainEnd(name string, status map[string]any, state string) string {
	code, ended, _ := unstructured.NestedInt64(status, state, "terminated", "exitCode")
	reason, _, _ := unstructured.NestedString(status, state, "terminated", "reason")
	switch {
	case !ended || code == 0:
		return ""
	case reason == "OOMKilled":
		return fmt.Sprintf("container %s is out of memory", name)
	}
	return fmt.Sprintf("container %s ends with exit code %d", name, code)
}

func (s *Server) definitionProblems(ctx context.Context) ([]looked, error) {
	crds, err := s.all(ctx, definitions)
	var problems []looked
	k := kind{
		Group: definitions.Group, Version: definitions.Version, Resource: definitions.Resource,
		Kind: "CustomResourceDefinition",
	}
	for _, crd := range crds {
		for _, c := range conditionsOf(crd) {
			if !c.good() {
				why := c.Type + " is " + c.Status
				if c.Message != "" {
					why += ": " + c.Message
				}
				problems = append(problems, k.lookedAt(crd, failing, why))
			}
		}
	}
	return problems, err
}

// lookedAt returns an object whose owner does not matter.
func (k kind) lookedAt(object unstructured.Unstructured, s state, why string) looked {
	return k.looked(metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
	}, s, why)
}

// quotaProblems returns the quotas of which nothing is left.
func (s *Server) quotaProblems(ctx context.Context) ([]looked, error) {
	k := kind{Version: "v1", Resource: "resourcequotas", Kind: "ResourceQuota"}
	quotas, err := s.all(ctx, k.resource())
	var problems []looked
	for _, q := range quotas {
		hard, _, _ := unstructured.NestedStringMap(q.Object, "status", "hard")
		used, _, _ := unstructured.NestedStringMap(q.Object, "status", "used")
		var full []string
		for name, limit := range hard {
			most, err1 := resource.ParseQuantity(limit)
			now, err2 := resource.ParseQuantity(used[name])
			if err1 == nil && err2 == nil && !most.IsZero() && now.Cmp(most) >= 0 {
				full = append(full, fmt.Sprintf("%s is used up: %s of %s", name, used[name], limit))
			}
		}
		slices.Sort(full)
		for _, why := range full {
			problems = append(problems, k.lookedAt(q, pending, why))
		}
	}
	return problems, err
}

// webhookProblems returns the webhooks whose service does not exist.
func (s *Server) webhookProblems(ctx context.Context) ([]looked, error) {
	var problems []looked
	err := s.eachWebhook(ctx, func(k kind, c unstructured.Unstructured, hook map[string]any) {
		if why := s.hookProblem(ctx, hook); why != "" {
			problems = append(problems, k.lookedAt(c, failing, why))
		}
	})
	return problems, err
}

// eachWebhook calls report for each admission webhook, those that may change objects first, with
// the kind and the object that configure it.
func (s *Server) eachWebhook(
	ctx context.Context, report func(k kind, c unstructured.Unstructured, hook map[string]any),
) error {
	for _, k := range []kind{
		{Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"},
		{Resource: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"},
	} {
		k.Group, k.Version = "admissionregistration.k8s.io", "v1"
		configurations, err := s.all(ctx, k.resource())
		if err != nil {
			return err
		}
		for _, c := range configurations {
			hooks, _, _ := unstructured.NestedSlice(c.Object, "webhooks")
			for _, each := range hooks {
				hook, _ := each.(map[string]any)
				report(k, c, hook)
			}
		}
	}
	return nil
}

// hookProblem says why a webhook cannot be called, or nothing.
func (s *Server) hookProblem(ctx context.Context, hook map[string]any) string {
	name, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "name")
	namespace, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "namespace")
	if name == "" {
		return ""
	}
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	_, err := s.dynamic.Resource(services).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return ""
	}
	called, _ := hook["name"].(string)
	effect := "requests that it should see are refused"
	if policy, _ := hook["failurePolicy"].(string); policy == "Ignore" {
		effect = "it is left out"
	}
	return fmt.Sprintf("%s cannot be called, so %s: %s", called, effect, err)
}
