package apitest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestOnDemandGroups sends the first requests for several groups, and for the documents
// about all of them, at the same time.
func TestOnDemandGroups(t *testing.T) {
	t.Parallel()
	// With the race detector, beside other tests, the documents may take longer than a minute,
	// after which the server would give up.
	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.RequestTimeout = 10 * time.Minute
	})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).RESTClient()
	paths := []string{
		"/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/apps/v1/deployments",
		"/apis/batch/v1/", "/apis/batch/v1/namespaces/default/jobs",
		"/apis/policy/v1/poddisruptionbudgets", "/api/v1/pods", "/openapi/v2", "/openapi/v3",
		"/openapi/v3/apis/autoscaling/v2", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1",
		"/openapi/v3/apis/batch/v1", "/apis/apps/v1/namespaces/default/statefulsets",
		"/api/v1/nodes", "/api/v1/namespaces/default", "/api/v1/namespaces/default/services",
	}
	var all sync.WaitGroup
	for range 4 {
		for _, path := range paths {
			all.Go(func() {
				if _, err := client.Get().AbsPath(path).DoRaw(t.Context()); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			})
		}
	}
	all.Wait()
}

// TestOnDemandDiscovery checks that the first request for the discovery document of all
// groups lists the resources of groups that nobody has used.
func TestOnDemandDiscovery(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	client := discovery.NewDiscoveryClientForConfigOrDie(s.RESTConfig())
	groups, resources, failed, err := client.GroupsAndMaybeResources()
	if err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	if resources == nil {
		t.Fatal("the document of all groups has no resources")
	}
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			found := false
			for gv, list := range resources {
				found = found || gv.String() == version.GroupVersion && len(list.APIResources) > 0
			}
			if !found {
				t.Errorf("%s has no resources", version.GroupVersion)
			}
		}
	}
	var root struct{ Paths []string }
	data, err := client.RESTClient().Get().AbsPath("/").DoRaw(t.Context())
	if err == nil {
		err = json.Unmarshal(data, &root)
	}
	if err != nil || !slices.Contains(root.Paths, "/apis/batch/v1") {
		t.Errorf("/ lists %v, %v", root.Paths, err)
	}
}

// TestOnDemandVersionOfWebhook checks that a webhook for one version of a kind is called for the
// other version too, although nobody has used the webhook's version.
func TestOnDemandVersionOfWebhook(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.WithoutControllers)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	url, none := "https://127.0.0.1:1/nobody-listens-here", admissionregistrationv1.SideEffectClassNone
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "refuses"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:                    "refuses.example.com",
				AdmissionReviewVersions: []string{"v1"},
				SideEffects:             &none,
				ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{"autoscaling"}, APIVersions: []string{"v1"},
						Resources: []string{"horizontalpodautoscalers"},
					},
				}},
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scaler := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "scaler-"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "d",
			},
			MaxReplicas: 1,
		},
	}
	// The webhook is called as soon as the server's informer has seen its configuration.
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			_, err := client.AutoscalingV2().HorizontalPodAutoscalers(metav1.NamespaceDefault).Create(ctx,
				scaler, metav1.CreateOptions{})
			if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
				return false, err
			}
			return err != nil, nil
		})
	if err != nil {
		t.Errorf("create through v2 with a webhook for v1: %v", err)
	}
}
