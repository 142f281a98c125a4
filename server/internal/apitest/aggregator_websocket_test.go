package apitest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// TestAggregatorWebsocket keeps a websocket to an extension API server open. The user may have one
// request at a time, yet can send other requests meanwhile. The websocket stays open until the
// control plane stops.
func TestAggregatorWebsocket(t *testing.T) {
	t.Parallel()
	e := startExtension(t, "127.0.0.1", "talk")
	s := servertest.Run(t, func(o *server.Options) { o.AuthorizationModes = []string{"AlwaysAllow"} })
	c := extend(t, s)
	c.service("talk",
		corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
	c.await(c.register("talk", e.port, trusting(e)), "Passed")
	c.awaitStatus("/apis/talk.example.com/v1/echoes/one", http.StatusOK)

	ann, err := s.User("ann")
	if err != nil {
		t.Fatal(err)
	}
	tls, err := rest.TLSConfigFor(ann)
	if err != nil {
		t.Fatal(err)
	}
	limited := extend(t, s)
	if limited.http, err = rest.HTTPClientFor(ann); err != nil {
		t.Fatal(err)
	}
	schema := oneAtATime(t, c, "ann")
	eventually(t, "the limit is in force", func() error {
		response, _ := limited.get("/api")
		matched := response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
		if matched != schema {
			return fmt.Errorf("%s with flow schema %q", response.Status, matched)
		}
		return nil
	})

	dialer := websocket.Dialer{TLSClientConfig: tls}
	conn, response, err := dialer.DialContext(t.Context(),
		strings.Replace(s.URL(), "https", "wss", 1)+"/apis/talk.example.com/v1/echoes/one/talk", nil)
	if err != nil {
		t.Fatalf("%v (%v)", err, response)
	}
	defer response.Body.Close()
	defer conn.Close()
	repeats := func(message string) {
		t.Helper()
		if err := conn.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != message {
			t.Errorf("got %q, %v, want %q", got, err, message)
		}
	}
	repeats("hello")

	limited.awaitStatus("/api/v1/configmaps", http.StatusOK)
	repeats("still there")

	// Stop does not wait for the websocket.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	if _, message, err := conn.ReadMessage(); err == nil {
		t.Errorf("got a message after Stop: %q", message)
	}
}

// oneAtATime limits a user to one request at a time, and returns the UID of the flow schema.
func oneAtATime(t *testing.T, client kubernetes.Interface, user string) string {
	t.Helper()
	level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: user}}
	level.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
	level.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{
		NominalConcurrencyShares: new(int32(0)), BorrowingLimitPercent: new(int32(0)),
		LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
	}
	if _, err := client.FlowcontrolV1().PriorityLevelConfigurations().Create(t.Context(), level,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := []string{"*"}
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: user}}
	schema.Spec.MatchingPrecedence = 2
	schema.Spec.PriorityLevelConfiguration.Name = user
	schema.Spec.Rules = []flowcontrolv1.PolicyRulesWithSubjects{{
		Subjects: []flowcontrolv1.Subject{
			{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}},
		},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: all, APIGroups: all, Resources: all, Namespaces: all, ClusterScope: true},
		},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
	}}
	schema, err := client.FlowcontrolV1().FlowSchemas().Create(t.Context(), schema,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(schema.UID)
}
