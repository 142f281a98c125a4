package apitest

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
)

func inProcess(t *testing.T, s *server.Server, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := s.InProcessConfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestInProcessIdentity compares who a client is in process and over TLS.
func TestInProcessIdentity(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	whoami := func(config *rest.Config) authenticationv1.UserInfo {
		t.Helper()
		reviews := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews()
		review, err := reviews.Create(t.Context(), &authenticationv1.SelfSubjectReview{},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.UserInfo
	}
	remote, err := s.User("jane", "developers")
	if err != nil {
		t.Fatal(err)
	}
	local := inProcess(t, s, "jane", "developers")
	// The ID of the credential is the hash of the certificate, of which each configuration has
	// another.
	ids := cmpopts.IgnoreMapEntries(func(key string, _ authenticationv1.ExtraValue) bool {
		return key == "authentication.kubernetes.io/credential-id"
	})
	if diff := cmp.Diff(whoami(remote), whoami(local), ids); diff != "" {
		t.Errorf("over TLS (-), in process (+):\n%s", diff)
	}
	_, err = kubernetes.NewForConfigOrDie(local).CoreV1().Secrets(namespace).List(t.Context(),
		metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list of secrets by a user without a role: %v, want it forbidden", err)
	}
	admin := inProcess(t, s, "admin", "system:masters")
	admin.Impersonate = rest.ImpersonationConfig{UserName: "john"}
	if john := whoami(admin); john.Username != "john" {
		t.Errorf("impersonated %q, want john", john.Username)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestInProcessPretence has a client in process pretend to be somebody else, by everything that a
// request can carry. Only the certificate counts, and impersonation needs the permission for it.
func TestInProcessPretence(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	admin := kubernetes.NewForConfigOrDie(s.RESTConfig())
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"},
			ResourceNames: []string{"john"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	jane := "jane-" + namespace // nobody else's binding is about her
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: jane}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "jane may impersonate john", func() error {
		review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: jane,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "impersonate", Resource: "users", Name: "john",
				},
			}}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New(review.Status.Reason)
		}
		return err
	})
	for name, test := range map[string]struct {
		header http.Header
		want   string // the user, or empty if it is refused
	}{
		"of a proxy": {http.Header{
			"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"},
		}, jane},
		"token":            {http.Header{"Authorization": {"Bearer nobody's"}}, jane},
		"impersonate":      {http.Header{"Impersonate-User": {"john"}}, "john"},
		"impersonate more": {http.Header{"Impersonate-User": {"admin"}}, ""},
		"impersonate a group": {http.Header{
			"Impersonate-User": {"john"}, "Impersonate-Group": {"system:masters"},
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := inProcess(t, s, jane, "developers")
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					r = r.Clone(r.Context())
					maps.Copy(r.Header, test.header)
					return next.RoundTrip(r)
				})
			})
			ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{
				Name: "admin", Groups: []string{user.SystemPrivilegedGroup},
			})
			client := kubernetes.NewForConfigOrDie(config)
			review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
				&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if test.want == "" {
				if !apierrors.IsForbidden(err) {
					t.Errorf("got %v, want it forbidden", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			is := review.Status.UserInfo
			if is.Username != test.want || slices.Contains(is.Groups, user.SystemPrivilegedGroup) {
				t.Errorf("the client is %q in %v, want %q", is.Username, is.Groups, test.want)
			}
			if _, err := client.CoreV1().Secrets(namespace).List(ctx,
				metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("list of secrets: %v, want it forbidden", err)
			}
		})
	}
}

// TestInProcessClients uses the configuration with each kind of client.
func TestInProcessClients(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, namespace := shared(t)
	config := inProcess(t, s, "admin", "system:masters")
	typed := kubernetes.NewForConfigOrDie(config)
	if _, err := typed.CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shown"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	if _, err := dynamic.NewForConfigOrDie(config).Resource(gvr).Namespace(namespace).Get(ctx, "shown",
		metav1.GetOptions{}); err != nil {
		t.Errorf("dynamic: %v", err)
	}
	if _, err := metadata.NewForConfigOrDie(config).Resource(gvr).Namespace(namespace).Get(ctx,
		"shown", metav1.GetOptions{}); err != nil {
		t.Errorf("metadata: %v", err)
	}
	if _, lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).
		ServerGroupsAndResources(); err != nil || len(lists) == 0 {
		t.Errorf("discovery: %d lists, %v", len(lists), err)
	}
	factory := informers.NewSharedInformerFactory(typed, 0)
	lister := factory.Core().V1().ConfigMaps().Lister()
	running, cancel := context.WithCancel(ctx)
	factory.Start(running.Done())
	factory.WaitForCacheSync(ctx.Done())
	if _, err := lister.ConfigMaps(namespace).Get("shown"); err != nil {
		t.Errorf("informer: %v", err)
	}
	cancel()
	factory.Shutdown()
}

// TestInProcessWatch checks that a watch streams, waits for a slow reader without losing an event,
// and ends with its context.
func TestInProcessWatch(t *testing.T) {
	t.Parallel()
	s, namespace := shared(t)
	maps := kubernetes.NewForConfigOrDie(inProcess(t, s, "admin", "system:masters")).CoreV1().
		ConfigMaps(namespace)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "size=large"})
	if err != nil {
		t.Fatal(err)
	}
	const objects = 20 // of 200 KiB each, more than the transport buffers
	for range objects {
		large := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: "large-",
				Labels:       map[string]string{"size": "large"},
			},
			Data: map[string]string{"text": strings.Repeat("x", 200<<10)},
		}
		if _, err := maps.Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range objects {
		event := <-watch.ResultChan()
		if m, ok := event.Object.(*corev1.ConfigMap); !ok || len(m.Data["text"]) != 200<<10 {
			t.Fatalf("event %d: %v", n, event.Type)
		}
	}
	cancel()
	for range watch.ResultChan() { // the watch ends
	}
}
