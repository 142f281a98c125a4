package invariant

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var served = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "configmaps"},
	{Group: "example.com", Version: "v1", Resource: "ponds"},
	{Group: "example.org", Version: "v1", Resource: "ponds"},
	{Group: "example.com", Version: "v1", Resource: "dug-outs"},
}

func TestCompile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"pods.all(p, p.metadata.name != '')",
		"pods.size() <= configmaps.size() ? true : false",
		"configmaps: old == null || new == null || old.data == new.data",
		"ponds.example.com: new == null || pods.size() > 0",
		"ponds.example.com.size() < ponds.example.org.size()",
		"dug-outs: new.spec.depth > 0",
		"pods.all(p, quantity(p.spec.cpu).isLessThan(quantity('2')))",
	} {
		r, err := Parse(text)
		if err == nil {
			_, err = Compile([]*Rule{r}, served)
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWrongRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"pods.size( <= 3":                    {"line 1, column 12: ", "Syntax error"},
		"pod.size() <= 3":                    {"line 1, column 1: ", "pod: did you mean pods?"},
		"pods.all(p, configmap.size() == p)": {"configmap: did you mean configmaps?"},
		"ponds.size() > 0":                   {"ponds: write ponds.example.com or ponds.example.org"},
		"pods.size()":                        {"the value is a int, not a bool"},
		"1 < 2":                              {"no resource is named"},
		"pods.size() > 0 && old != null":     {"old and new are those of a resource"},
		"configmap: old != null":             {"there is no resource configmap: did you mean configmaps?"},
		"ponds: old != null":                 {"several resources: ponds.example.com, ponds.example.org"},
		"configmaps.apps: old != null":       {"there is no resource configmaps.apps"},
		"xylophones: old != null":            {"there is no resource xylophones"},
	} {
		r, err := Parse(text)
		if err == nil {
			_, err = Compile([]*Rule{r}, served)
		}
		if wrong := (*Error)(nil); !errors.As(err, &wrong) || wrong.Rule != text {
			t.Errorf("%s: the error is %v, not of this rule", text, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error %v has no %q", text, err, part)
			}
		}
	}
}
