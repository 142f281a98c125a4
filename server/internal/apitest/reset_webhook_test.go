package apitest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// admit serves a webhook that is called for config maps named "slow", and answers with what decide
// returns.
func admit(t *testing.T, s *server.Server, decide func(context.Context) error) {
	t.Helper()
	e := servertest.Webhooks(t, s, servertest.YAML(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: slow}
webhooks:
- name: slow.example.com
  sideEffects: NoneOnDryRun
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
  clientConfig: {service: {namespace: default, name: slow}}
  matchConditions: [{name: slow, expression: "request.name == 'slow'"}]
  rules:
  - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}
`))
	l, err := tls.Listen("tcp", e.Addr(), e.TLS)
	ok(t, err)
	webhook := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(w, fmt.Sprint("no review: ", err), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
			if err := decide(r.Context()); err != nil {
				review.Response.Allowed = false
				review.Response.Result = &metav1.Status{Message: err.Error()}
			}
			_ = json.NewEncoder(w).Encode(review) // the API server reports what it misses
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- webhook.Serve(l) }()
	t.Cleanup(func() {
		_ = webhook.Close()
		<-ended
	})
}

// An admission webhook may use the API while a reset waits for the request that the webhook is to
// admit.
func TestWebhookThatUsesTheAPIDuringAReset(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(context.Context, *kubernetes.Clientset) error{
		"reads": func(ctx context.Context, c *kubernetes.Clientset) error {
			_, err := c.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
			if err == nil {
				_, err = c.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			}
			return err
		},
		"asks for a review": func(ctx context.Context, c *kubernetes.Clientset) error {
			review := &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
				},
			}
			_, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review,
				metav1.CreateOptions{})
			return err
		},
		"writes": func(ctx context.Context, c *kubernetes.Clientset) error {
			maps := c.CoreV1().ConfigMaps("default")
			m, err := maps.Create(ctx, named("by-the-webhook"), metav1.CreateOptions{})
			if err == nil {
				m.Data["color"] = "red"
				_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Run(t)
			c := clientsOf(t, s)
			called, proceed := make(chan struct{}), make(chan struct{})
			webhook := kubernetes.NewForConfigOrDie(s.RESTConfig())
			admit(t, s, func(ctx context.Context) error {
				close(called)
				<-proceed
				return use(ctx, webhook)
			})
			maps := c.CoreV1().ConfigMaps("default")
			_, err := maps.Create(t.Context(), named("kept"), metav1.CreateOptions{})
			ok(t, err)
			snapshot := takeSnapshot(t, s)

			created, reset := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := maps.Create(t.Context(), named("slow"), metav1.CreateOptions{})
				created <- err
			}()
			<-called
			go func() { reset <- s.Reset(t.Context(), snapshot) }()
			await(t, "the reset holds writes", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				_, err := maps.Create(ctx, named("held"), metav1.CreateOptions{
					DryRun: []string{metav1.DryRunAll}})
				return err != nil
			})
			close(proceed)
			if err := <-created; err != nil {
				t.Errorf("the request that the webhook admits: %v", err)
			}
			ok(t, <-reset)
			for _, gone := range []string{"slow", "by-the-webhook"} {
				if _, err := maps.Get(t.Context(), gone, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("%s after the reset: %v", gone, err)
				}
			}
			if _, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}
