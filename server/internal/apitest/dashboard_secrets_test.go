package apitest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/dashboard"
	"github.com/kinproc/kinproc/server/servertest"
)

const (
	dashboardValue = "Correct-Horse-Battery-Staple"
	secretsPath    = "/api/v1/namespaces/default/secrets"
)

// wantNothingOf fails if the page has received a value, as it is or in base64.
func (p *dashboardPage) wantNothingOf(value string) {
	p.t.Helper()
	seen := p.seen.all()
	encoded := base64.StdEncoding.EncodeToString([]byte(value))
	for _, hidden := range []string{value, encoded, strings.TrimRight(encoded, "=")} {
		if i := strings.Index(seen, hidden); i >= 0 {
			p.t.Errorf("%q was sent: %s", hidden, seen[max(0, i-600):min(len(seen), i+200)])
		}
	}
}

// Operations of a JSON patch that read what the dashboard hides are not sent.
func TestAttackSecretByCopy(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "one", Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{"example.com/copy": dashboardValue},
		},
		StringData: map[string]string{"password": dashboardValue},
	}
	secrets := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Secrets("default")
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{
		"", "/", "/data", "/data/", "/data/password", "/data/password/0", "/data/a~1b~0c",
		"x/data/password", "/stringData/password", "/metadata", "/metadata/annotations",
		"/metadata/annotations/example.com~1copy", "/%64ata/password", "/dat%61", "#/data/password",
		"/metadata/%61nnotations",
	} {
		for _, operation := range []string{
			`{"op":"copy","from":%q,"path":"/metadata/labels/x"}`,
			`{"op":"move","from":%q,"path":"/metadata/labels/x"}`,
			`{"op":"test","path":%q,"value":"guess"}`,
			// before it is one that is fine
			`{"op":"add","path":"/metadata/labels/y","value":"z"},{"op":"copy","from":%q,"path":"/x"}`,
			`{"from":%q,"FROM":"/metadata/labels/a","op":"copy","path":"/metadata/labels/x"}`,
		} {
			body := "[" + fmt.Sprintf(operation, from) + "]"
			for _, path := range []string{secretsPath + "/one", "/api/v1/namespaces/default/%73ecrets/one"} {
				if code, answer := p.try(http.MethodPatch, path, body, ""); code != http.StatusBadRequest ||
					!strings.Contains(answer, "does not read the data and the annotations of a Secret") {
					t.Errorf("%s got %d: %s", body, code, answer)
				}
			}
		}
	}
	for _, body := range []string{
		`[{"op":"copy","from":"/metadata/labels/a","path":"/metadata/labels/x"}]`,
		`[{"op":"test","path":"/metadata/labels/x","value":"b"}]`,
		`[{"op":"move","from":"/metadata/labels/x","path":"/metadata/labels/database"}]`,
		`[{"op":"add","path":"/data/more","value":"eA=="},{"op":"remove","path":"/data/more"}]`,
	} {
		_, answer := p.try(http.MethodPatch, secretsPath+"/one", body, "")
		if !strings.Contains(answer, `"code":200`) {
			t.Errorf("%s got %s", body, answer)
		}
	}
	_, answer := p.try(http.MethodPatch, "/api/v1/namespaces/default/configmaps/one",
		`[{"op":"test","path":"/data/x","value":"guess"}]`, "")
	if strings.Contains(answer, "does not read") || !strings.Contains(answer, `"steps"`) {
		t.Errorf("the patch of another kind got %s", answer)
	}
	p.wantNothingOf(dashboardValue)
}

// Somebody else has copied values to where the dashboard shows them, and policies repeat them.
func TestAttackSecretRepeated(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	const short = "pa5s"
	labels := map[string]string{
		"whole": dashboardValue, "part": "x." + dashboardValue, "short": short,
		"encoded": strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(dashboardValue)), "="),
	}
	_, err1 := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		StringData: map[string]string{"password": dashboardValue, "short": short},
	}, metav1.CreateOptions{})
	_, err2 := client.CoreV1().Secrets("default").Patch(t.Context(), "one", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"key","whole":%q,"part":%q,"short":%q,"encoded":%q},
			"finalizers":["example.com/%s"]}}`, dashboardValue, labels["whole"], labels["part"],
			labels["short"], labels["encoded"], dashboardValue), metav1.PatchOptions{})
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	const form = `{"apiVersion":"v1","kind":"Secret","metadata":%s,"stringData":{"password":"` +
		dashboardValue + `"}}`
	wrong := fmt.Sprintf(form, `{"name":"one","labels":{"x":"`+dashboardValue+`!"}}`)
	for _, each := range []struct{ method, path, body, want string }{
		{"GET", secretsPath + "/one", "", "whole: (28 bytes, not shown)"},
		{"GET", secretsPath, "", "bytes, not shown"},
		{"GET", "/api/v1/secrets?limit=10", "", "bytes, not shown"},
		{"PATCH", secretsPath + "/one", `{"metadata":{"labels":{"more":"x"}}}`, "more: x"},
		{"PATCH", secretsPath + "/one?dryRun=All", `[{"op":"add","path":"/metadata/labels/y","value":"` +
			dashboardValue + `"}]`, "bytes, not shown"},
		// errors of validation
		{"POST", secretsPath, wrong, "Invalid value"},
		{"PUT", secretsPath + "/one", wrong, "Invalid value"},
		{"PATCH", secretsPath + "/one?force=true", wrong, "Invalid value"},
		{"PATCH", secretsPath + "/one", `{"metadata":{"labels":{"x":"` + dashboardValue + `!"}}}`,
			"Invalid value"},
		{"PATCH", secretsPath + "/one", `[{"op":"add","path":"/data","value":{"b":"` +
			base64.StdEncoding.EncodeToString([]byte(dashboardValue)) +
			`"}},{"op":"add","path":"/metadata/labels/b","value":"` + dashboardValue + `!"}]`,
			"Invalid value"},
		{"POST", secretsPath, fmt.Sprintf(form, `{"generateName":"`+strings.ToLower(dashboardValue)+
			`-"}`), `"code":201`},
		{"POST", secretsPath, `{"apiVersion":"v1","kind":"Secret","metadata":{"generateName":
			"secret-value-"},"stringData":{"a":"secret-value"}}`, "(12 bytes, not shown)-"},
	} {
		if _, answer := p.try(each.method, each.path, each.body, ""); !strings.Contains(answer, each.want) {
			t.Errorf("%s %s %s: got %s, want %s in it", each.method, each.path, each.body, answer, each.want)
		}
	}
	// screens that look at the same Secret
	query := ofObject("", "secrets", "default", "one").Encode()
	p.events("/objects?"+query)("object", hasText("bytes, not shown"))
	for _, path := range []string{"/history?", "/tree?", "/events?"} {
		if code, body := p.get(path + query); code != http.StatusOK {
			t.Errorf("%s got %d: %s", path, code, body)
		}
	}
	p.wantNothingOf(dashboardValue)
	if strings.Contains(p.seen.all(), short) {
		t.Errorf("%q was sent", short)
	}
}

// A policy says the data of the Secret that it refuses, of which the request has nothing.
func TestAttackSecretInMessage(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	p := openDashboard(t, s, dashboard.Options{Writes: true})
	for path, body := range map[string]string{
		"validatingadmissionpolicies": `{"apiVersion":"admissionregistration.k8s.io/v1",
			"kind":"ValidatingAdmissionPolicy","metadata":{"name":"tells"},"spec":{"matchConstraints":{
			"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["UPDATE","DELETE"],
			"resources":["secrets"]}]},"validations":[{"expression":"false","messageExpression":
			"'it has ' + (oldObject == null ? '' : string(oldObject.data.password))"}]}}`,
		"validatingadmissionpolicybindings": `{"apiVersion":"admissionregistration.k8s.io/v1",
			"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"tells"},"spec":{
			"policyName":"tells","validationActions":["Deny"]}}`,
	} {
		_, answer := p.try(http.MethodPost, "/apis/admissionregistration.k8s.io/v1/"+path, body, "")
		if !strings.Contains(answer, `"code":201`) {
			t.Fatal(answer)
		}
	}
	_, answer := p.try(http.MethodPost, secretsPath, `{"apiVersion":"v1","kind":"Secret",
		"metadata":{"name":"one"},"stringData":{"password":"`+dashboardValue+`"}}`, "")
	if !strings.Contains(answer, `"code":201`) {
		t.Fatal(answer)
	}
	for answer = ""; !strings.Contains(answer, "it has "); { // policies take effect after a moment
		_, answer = p.try(http.MethodPatch, secretsPath+"/one", `{"metadata":{"labels":{"x":"y"}}}`, "")
	}
	for _, each := range []struct{ method, path, body string }{
		{"PATCH", secretsPath + "/one", `{"apiVersion":"v1","kind":"Secret","immutable":true}`},
		{"PUT", secretsPath + "/one", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"one"}}`},
		{"DELETE", secretsPath + "/one", ""},
		{"DELETE", secretsPath, ""},
	} {
		_, answer := p.try(each.method, each.path, each.body, "")
		if !strings.Contains(answer, "it has (40 bytes, not shown)") {
			t.Errorf("%s %s got %s", each.method, each.path, answer)
		}
	}
	p.wantNothingOf(dashboardValue)
}
