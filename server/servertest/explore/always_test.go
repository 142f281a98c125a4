package explore_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest/explore"
)

// promoter makes the member of a version the only primary one. It is wrong: it dismisses the one
// before only if it remembers it, and all others afterwards. After a restart, there are two for a
// moment.
func promoter(ctx context.Context, config *rest.Config) error {
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	set := func(name, primary string) error {
		m := named(name)
		m.Data = map[string]string{"primary": primary}
		_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
		return err
	}
	primary := ""
	return inCache(ctx, config, func(original *corev1.ConfigMap) error {
		next := "member-" + original.Data["version"]
		if primary != "" && primary != next {
			if err := set(primary, "no"); err != nil {
				return err
			}
		}
		_, err := maps.Create(ctx, named(next), metav1.CreateOptions{})
		if err := errors.Join(ignoreExists(err), set(next, "yes")); err != nil {
			return err
		}
		primary = next
		list, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, m := range list.Items {
			if m.Name != next && m.Data["primary"] == "yes" {
				if err := set(m.Name, "no"); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

const onePrimary = "configmaps.filter(m, m.?data.primary.orValue('') == 'yes').size() <= 1"

// What is wrong for a moment, and right at the end, is found if somebody says what is to be true
// always, and by nothing else.
func TestAlways(t *testing.T) {
	t.Parallel()
	original := named("original")
	original.Data = map[string]string{"version": "1"}
	test := explore.Test{
		InBubbles: true, Controller: promoter, Max: 6,
		Prepare: func(t explore.TB, s *server.Server) {
			_, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default").
				Create(t.Context(), original.DeepCopy(), metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("%v", err)
			}
		},
		Act: func(t explore.TB, config *rest.Config) {
			next := original.DeepCopy()
			next.Data["version"] = "2"
			_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default").Update(
				t.Context(), next, metav1.UpdateOptions{})
			if err != nil {
				t.Fatalf("%v", err)
			}
		},
	}
	const name = "missed-update-configmaps-original"
	wantNone(t, explore.Find(t, test), name)
	test.Always = []string{onePrimary, "configmaps: new != null || old.metadata.name != 'member-1'"}
	findings := explore.Find(t, test)
	wantFinding(t, findings, name, "Not always true: "+onePrimary+
		"\n  after: update configmaps default/member-2, by the controller\n  at: explore/always_test.go:")
	wantFinding(t, findings, name, "A second try had the same problems.")
}
