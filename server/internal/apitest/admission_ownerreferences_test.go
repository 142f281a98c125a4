package apitest

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestAdmissionOwnerReferencesPermissionEnforcement(t *testing.T) {
	t.Parallel()
	s, admin := quiet(t, enable("OwnerReferencesPermissionEnforcement"))
	ctx := t.Context()
	may := func(user, group, resource string, verbs ...string) {
		allow(t, admin, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: user},
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs})
	}
	for _, user := range []string{"writer", "deleter", "blocker"} {
		may(user, "", "configmaps", "create", "update")
		may(user, "apps", "replicasets", "update")
		may(user, "apps", "replicasets/status", "update")
	}
	may("deleter", "", "configmaps", "delete")
	may("blocker", "", "configmaps", "delete")
	may("blocker", "apps", "deployments/finalizers", "update")
	may("blocker", "", "nodes/finalizers", "update")

	owner := func(blocks *bool) metav1.OwnerReference {
		return metav1.OwnerReference{
			APIVersion:         "apps/v1",
			Kind:               "Deployment",
			Name:               "d",
			UID:                "u",
			BlockOwnerDeletion: blocks,
		}
	}
	of := func(apiVersion, kind string) func(metav1.OwnerReference) metav1.OwnerReference {
		return func(o metav1.OwnerReference) metav1.OwnerReference {
			o.APIVersion, o.Kind, o.UID = apiVersion, kind, "v"
			return o
		}
	}
	clients := map[string]kubernetes.Interface{}
	for _, user := range []string{"writer", "deleter", "blocker"} {
		clients[user] = as(t, s, user)
		eventually(t, user, func() error {
			_, err := clients[user].CoreV1().ConfigMaps("default").Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}, metav1.CreateOptions{})
			return err
		})
	}
	for name, c := range map[string]struct {
		user string
		// before is nil for a create request.
		before, after []metav1.OwnerReference
		refused       bool
	}{
		"create with owner":          {"writer", nil, []metav1.OwnerReference{owner(nil)}, false},
		"create with blocking owner": {"writer", nil, []metav1.OwnerReference{owner(new(true))}, true},
		"create, permitted":          {"blocker", nil, []metav1.OwnerReference{owner(new(true))}, false},
		"create, of a node": {
			"blocker", nil, []metav1.OwnerReference{of("v1", "Node")(owner(new(true)))}, false,
		},
		"create, of another kind": {
			"blocker", nil, []metav1.OwnerReference{of("apps/v1", "DaemonSet")(owner(new(true)))}, true,
		},
		"create, of no kind": {
			"blocker", nil, []metav1.OwnerReference{of("example.com/v1", "Nothing")(owner(new(true)))}, true,
		},
		"leave alone": {
			"writer", []metav1.OwnerReference{owner(new(true))}, []metav1.OwnerReference{owner(new(true))},
			false,
		},
		"add": {
			"writer", []metav1.OwnerReference{}, []metav1.OwnerReference{owner(nil)}, true,
		},
		"add, may delete": {
			"deleter", []metav1.OwnerReference{}, []metav1.OwnerReference{owner(nil)}, false,
		},
		"remove":             {"writer", []metav1.OwnerReference{owner(nil)}, nil, true},
		"remove, may delete": {"deleter", []metav1.OwnerReference{owner(new(true))}, nil, false},
		"begin to block": {
			"deleter", []metav1.OwnerReference{owner(nil)}, []metav1.OwnerReference{owner(new(true))}, true,
		},
		"begin to block, permitted": {
			"blocker", []metav1.OwnerReference{owner(new(false))}, []metav1.OwnerReference{owner(new(true))},
			false,
		},
		"block another owner": {
			"deleter", []metav1.OwnerReference{owner(new(true))},
			[]metav1.OwnerReference{of("v1", "Node")(owner(new(true)))}, true,
		},
	} {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "m-", OwnerReferences: c.before},
		}
		maps := clients[c.user].CoreV1().ConfigMaps("default")
		var err error
		if c.before == nil {
			m.OwnerReferences = c.after
			_, err = maps.Create(ctx, m, metav1.CreateOptions{})
		} else {
			m = must(admin.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{}))(t)
			m.OwnerReferences = c.after
			_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
		}
		checkRefused(t, name, err, c.refused)
	}

	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       newPod().Spec,
	}
	set := must(admin.AppsV1().ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: template,
		},
	}, metav1.CreateOptions{}))(t)
	set.OwnerReferences = []metav1.OwnerReference{owner(nil)}
	_, err := clients["writer"].AppsV1().ReplicaSets("default").UpdateStatus(ctx, set,
		metav1.UpdateOptions{})
	checkRefused(t, "add by status", err, true)
}
