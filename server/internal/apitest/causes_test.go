package apitest

import (
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestCauses checks which causes a refusal says, and how often.
func TestCauses(t *testing.T) {
	t.Parallel()
	s, _ := shared(t)
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	const (
		core    = "/api/v1/namespaces/default/configmaps"
		json    = "application/json"
		budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	)
	send := func(method, path, contentType, body string) metav1.Status {
		t.Helper()
		status, _ := sendBody(t, client, method, s.URL()+path, contentType, body)
		return status
	}
	create := send(http.MethodPost, core, json, `{"metadata":{"name":"causes"}}`)
	if create.Status != metav1.StatusSuccess {
		t.Fatal(create.Message)
	}
	for name, test := range map[string]struct {
		method, path, contentType, body string
		want                            []string
	}{
		"an update": {
			http.MethodPatch, core + "/causes", "application/merge-patch+json",
			`{"metadata":{"labels":{"a":"%"},"annotations":{"%":""}}}`,
			[]string{"metadata.annotations", "metadata.labels"},
		},
		"a disruption budget": {
			http.MethodPost, budgets, json,
			`{"metadata":{"name":"causes","labels":{"a":"%"}},"spec":{"minAvailable":-1}}`,
			[]string{"spec.minAvailable"},
		},
		"the metadata of a disruption budget": {
			http.MethodPost, budgets, json,
			`{"metadata":{"name":"causes","labels":{"a":"%"}},"spec":{"minAvailable":1}}`,
			[]string{"metadata.labels"},
		},
		"a finalizer of a namespace": {
			http.MethodPost, "/api/v1/namespaces", json,
			`{"metadata":{"name":"causes"},"spec":{"finalizers":["100%"]}}`,
			[]string{"spec.finalizers", "spec.finalizers"},
		},
		"an address": {
			http.MethodPost, "/api/v1/namespaces/default/endpoints", json,
			`{"metadata":{"name":"causes"},
				"subsets":[{"addresses":[{"ip":"100%"}],"ports":[{"port":80}]}]}`,
			[]string{"subsets[0].addresses[0].ip", "subsets[0].addresses[0].ip"},
		},
		"the size of a claim": {
			http.MethodPost, "/api/v1/namespaces/default/persistentvolumeclaims", json,
			`{"metadata":{"name":"causes"},"spec":{"accessModes":["ReadWriteOnce"],
				"resources":{"requests":{"storage":"-5"}}}}`,
			[]string{"spec.resources[storage]"},
		},
		"the size of a volume": {
			http.MethodPost, "/api/v1/persistentvolumes", json,
			`{"metadata":{"name":"causes"},"spec":{"accessModes":["ReadWriteOnce"],
				"capacity":{"storage":"-5"},"hostPath":{"path":"/a"}}}`,
			[]string{"spec.capacity[storage]", "spec.capacity[storage]"},
		},
	} {
		status := send(test.method, test.path, test.contentType, test.body)
		var got []string
		if status.Details != nil {
			for _, cause := range status.Details.Causes {
				got = append(got, cause.Field)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: causes %q, want %q: %s", name, got, test.want, status.Message)
		}
	}
}
