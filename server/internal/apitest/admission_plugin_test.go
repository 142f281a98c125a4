package apitest

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/version"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/admission"
)

func enable(plugins ...string) func(*server.Options) {
	return func(o *server.Options) {
		o.Admission = server.NewAdmissionOptions()
		o.Admission.EnablePlugins = plugins
	}
}

// pluginInitializer is a plugin initializer. The client may be nil for plugins that read nothing.
type pluginInitializer struct{ client kubernetes.Interface }

func (g pluginInitializer) Initialize(p apiadmission.Interface) {
	if w, ok := p.(initializer.WantsExternalKubeClientSet); ok {
		w.SetExternalKubeClientSet(g.client)
	}
	if w, ok := p.(initializer.WantsEffectiveVersion); ok {
		w.InspectEffectiveVersion(compatibility.NewEffectiveVersionFromString(
			version.DefaultKubeBinaryVersion, "", ""))
	}
}

// newPlugin returns the plugin with the given name.
func newPlugin(t *testing.T, name string, client kubernetes.Interface) apiadmission.Interface {
	t.Helper()
	p, err := configuredPlugin(name, "", client)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func configuredPlugin(
	name, config string, client kubernetes.Interface,
) (apiadmission.Interface, error) {
	var r io.Reader
	if config != "" {
		r = strings.NewReader(config)
	}
	return admission.NewOptions().Plugins.InitPlugin(name, r, pluginInitializer{client})
}

// ask passes the creation of obj, or its update if old is given, to a plugin, which may
// mutate and validate it. Examples of resource are "pods", "pods/status" and
// "leases.coordination.k8s.io".
func ask(t *testing.T, p apiadmission.Interface, resource string, obj, old runtime.Object) error {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	resource, subresource, _ := strings.Cut(resource, "/")
	operation := apiadmission.Update
	if old == nil || reflect.ValueOf(old).IsNil() {
		operation, old = apiadmission.Create, nil
	}
	a := apiadmission.NewAttributesRecord(obj, old, kinds[0], m.GetNamespace(), m.GetName(),
		schema.ParseGroupResource(resource).WithVersion(kinds[0].Version), subresource, operation, nil,
		false, &user.DefaultInfo{Name: "jane"})
	if !p.Handles(operation) {
		return nil
	}
	if p, ok := p.(apiadmission.MutationInterface); ok {
		if err := p.Admit(t.Context(), a, nil); err != nil {
			return err
		}
	}
	if p, ok := p.(apiadmission.ValidationInterface); ok {
		return p.Validate(t.Context(), a, nil)
	}
	return nil
}

// checkRefused checks that err is 403 Forbidden if refused is true, and nil otherwise.
func checkRefused(t *testing.T, what string, err error, refused bool) {
	t.Helper()
	if refused && !apierrors.IsForbidden(err) || !refused && err != nil {
		t.Errorf("%s: got error %v, want Forbidden: %t", what, err, refused)
	}
}

// newPod returns a pod in the namespace default, modified by the given functions.
func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func requests(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = quantities(pairs...) }
}

func limits(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = quantities(pairs...) }
}

func tolerationsOf(tolerations []corev1.Toleration) string {
	var s []string
	for _, t := range tolerations {
		seconds := ""
		if t.TolerationSeconds != nil {
			seconds = fmt.Sprintf("/%ds", *t.TolerationSeconds)
		}
		s = append(s, fmt.Sprintf("%s=%s:%s%s", t.Key, t.Value, t.Effect, seconds))
	}
	return strings.Join(s, " ")
}

// allow grants rule to subject in the whole cluster.
func allow(
	t *testing.T, client kubernetes.Interface, subject rbacv1.Subject, rule rbacv1.PolicyRule,
) {
	t.Helper()
	role := must(client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: []rbacv1.PolicyRule{rule},
	}, metav1.CreateOptions{}))(t)
	must(client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{}))(t)
}
