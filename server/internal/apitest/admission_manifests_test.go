package apitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"

	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/server"
)

const (
	manifestSmall = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: small.static.k8s.io}
spec:
  matchConstraints:
    resourceRules:
    - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}
  validations: [{expression: "!has(object.data)"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: small.static.k8s.io}
spec: {policyName: small.static.k8s.io, validationActions: [Deny]}
`
	manifestLabel = `
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: MutatingAdmissionPolicy
  metadata: {name: label.static.k8s.io}
  spec:
    reinvocationPolicy: Never
    matchConstraints:
      resourceRules:
      - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}
    mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"by": "file"}}}'}
- apiVersion: admissionregistration.k8s.io/v1
  kind: MutatingAdmissionPolicyBinding
  metadata: {name: label.static.k8s.io}
  spec: {policyName: label.static.k8s.io}
`
	manifestDead = `
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: dead.static.k8s.io}
webhooks:
- name: dead.static.k8s.io
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [secrets]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`
)

// TestAdmissionManifests starts a server with policies and webhooks from files, which must take
// effect immediately.
func TestAdmissionManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("small/a.yaml", manifestSmall)
	write("label/a.yaml", manifestLabel)
	write("dead/a.yaml", fmt.Sprintf(manifestDead, "ValidatingWebhookConfiguration"))
	config := write("config.yaml", strings.ReplaceAll(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: DIR/small
- name: MutatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: MutatingAdmissionPolicyConfiguration
    staticManifestsDir: DIR/label
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    staticManifestsDir: DIR/dead
`, "DIR", dir))
	_, client := quiet(t, func(o *server.Options) {
		o.Admission = server.NewAdmissionOptions()
		o.Admission.ConfigFile = config
	})

	ctx := t.Context()
	maps := client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Data:       map[string]string{"a": ""},
	}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a validating policy from a file did not reject the request: %v", err)
	}
	m := must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{}))(t)
	if m.Labels["by"] != "file" {
		t.Errorf("a mutating policy from a file was not applied: labels are %v", m.Labels)
	}
	_, err := client.CoreV1().Secrets("default").Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) {
		t.Errorf("a webhook from a file was not called: %v", err)
	}
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "other.static.k8s.io"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        "small.static.k8s.io",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit},
			},
		}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a binding with a name reserved for files: got %v, want Invalid", err)
	}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx,
		"small.static.k8s.io", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get a policy from a file: got %v, want NotFound", err)
	}
}

// manifestLoaders is a plugin that records the manifest loaders it is given.
type manifestLoaders struct {
	apiadmission.Interface
	*initializer.ManifestLoaders
}

func (l *manifestLoaders) SetManifestLoaders(given *initializer.ManifestLoaders) {
	l.ManifestLoaders = given
}

// TestAdmissionManifestsRefused loads manifests. A server does not start with invalid ones.
func TestAdmissionManifestsRefused(t *testing.T) {
	t.Parallel()
	var l manifestLoaders
	core.AdmissionInitializer().Initialize(&l)
	for name, test := range map[string]struct {
		content string
		load    func(string) error
		want    string // part of the error; "" for no error
	}{
		"policies":          {manifestSmall, l.policies, ""},
		"other policies":    {manifestLabel, l.policies, "MutatingAdmissionPolicy"},
		"mutating policies": {manifestLabel, l.mutatingPolicies, ""},
		"unknown field": {
			strings.Replace(manifestSmall, "validations", "validation", 1), l.policies, "validation",
		},
		"wrong expression": {
			strings.Replace(manifestSmall, "!has(object.data)", "1 +", 1), l.policies,
			"spec.validations[0].expression",
		},
		"wrong name": {strings.ReplaceAll(manifestSmall, ".static", ""), l.policies, ".static.k8s.io"},
		"webhook":    {fmt.Sprintf(manifestDead, "ValidatingWebhookConfiguration"), l.webhooks, ""},
		"mutating webhook": {
			fmt.Sprintf(manifestDead, "MutatingWebhookConfiguration"), l.mutatingWebhooks, "",
		},
		"other webhook": {
			fmt.Sprintf(manifestDead, "MutatingWebhookConfiguration"), l.webhooks,
			"MutatingWebhookConfiguration",
		},
		"webhook of a list": {
			strings.Replace(fmt.Sprintf(manifestDead, "ValidatingWebhookConfigurationList"), "webhooks:",
				"items: []\nwebhooks:", 1), l.webhooks, "webhooks",
		},
		"wrong webhook": {
			strings.Replace(fmt.Sprintf(manifestDead, "ValidatingWebhookConfiguration"), "None", "Some", 1),
			l.webhooks, "webhooks[0].sideEffects",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			err := test.load(dir)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func (l *manifestLoaders) policies(dir string) error {
	_, _, _, err := l.LoadValidatingPolicyManifests(dir)
	return err
}

func (l *manifestLoaders) mutatingPolicies(dir string) error {
	_, _, _, err := l.LoadMutatingPolicyManifests(dir)
	return err
}

func (l *manifestLoaders) webhooks(dir string) error {
	_, _, err := l.LoadValidatingWebhookManifests(dir)
	return err
}

func (l *manifestLoaders) mutatingWebhooks(dir string) error {
	_, _, err := l.LoadMutatingWebhookManifests(dir)
	return err
}
