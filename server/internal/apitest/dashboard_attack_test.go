package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/dashboard"
	"github.com/kinproc/kinproc/server/servertest"
)

// Of large requests, the dashboard keeps fewer, and none after the page is closed.
func TestAttackLargeRequests(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{})
	live, leave := p.stream("/live?path=configmaps")
	p.awaitFollowing(s)
	client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().RESTClient()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},
		"data":{"x":"%s"}}`, strings.Repeat("x", 900<<10))
	ids := []uint64{}
	for len(ids) < 30 { // 26 MiB, if there is one copy of each body; the limit is 24
		if err := client.Post().AbsPath("/api/v1/namespaces/default/configmaps").
			Param("dryRun", "All").Body([]byte(body)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		var passed struct{ Requests []struct{ ID uint64 } }
		if err := json.Unmarshal([]byte(live("passed", hasText(`"groups"`))), &passed); err != nil {
			t.Fatal(err)
		}
		for _, r := range passed.Requests {
			ids = append(ids, r.ID)
		}
	}
	last := fmt.Sprintf("/live/%d", ids[len(ids)-1])
	if code, _ := p.get(fmt.Sprintf("/live/%d", ids[0])); code != http.StatusNotFound {
		t.Errorf("the first of %d large requests got %d, want 404", len(ids), code)
	}
	if code, body := p.get(last); code != http.StatusOK || !strings.Contains(body, `"at":"etcd"`) {
		t.Errorf("the last of %d large requests got %d", len(ids), code)
	}
	leave()
	for code := 0; code != http.StatusNotFound; {
		code, _ = p.get(last)
	}
}

// TestAttackForm sends a body with the form that takes gigabytes with its aliases expanded.
func TestAttackForm(t *testing.T) {
	t.Parallel()
	p := openDashboard(t, servertest.Run(t), dashboard.Options{Writes: true})
	const path = "/api/v1/namespaces/default/configmaps"
	aliases := bodyBomb("apiVersion: v1\nkind: ConfigMap")
	if code, body := p.try(http.MethodPost, path, aliases, ""); code != http.StatusBadRequest ||
		!strings.Contains(body, "bytes expand to more than 3145728 bytes") {
		t.Errorf("aliases: %d %.300s", code, body)
	}
}
