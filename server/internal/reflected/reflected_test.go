package reflected_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kinproc/kinproc/server/internal/reflected"
)

type (
	inner struct {
		Name  int    `json:"name"` // hidden by that of outer
		Other string `json:"other"`
	}
	// Optional is exported, because encoding/json sets no pointer of another type.
	Optional struct {
		Bonus string `json:"bonus"`
	}
	list  []list
	table map[string]table
	outer struct {
		Name string `json:"name"`
		inner
		*Optional
		List  list    `json:"list,omitempty"`
		Table table   `json:"table,omitempty"`
		Next  []outer `json:"next,omitempty"`
	}
	endless struct{ *endless }
)

func TestDefinitionOfEmbedded(t *testing.T) {
	t.Parallel()
	known := map[string]common.OpenAPIDefinition{}
	of := reflect.TypeFor[outer]()
	if err := reflected.Definitions(known, func(name string) spec.Ref {
		return spec.MustCreateRef("#/" + name)
	}, of); err != nil {
		t.Fatal(err)
	}
	schema := known[reflected.Name(of)].Schema
	if got := schema.Properties["name"].Type; !slices.Equal(got, []string{"string"}) {
		t.Errorf("the type of name is %v", got)
	}
	if want := []string{"name", "other"}; !slices.Equal(schema.Required, want) {
		t.Errorf("required are %v, want %v", schema.Required, want)
	}
	if len(known) != 1 {
		t.Errorf("there are %d definitions", len(known))
	}
}

func TestStructural(t *testing.T) {
	t.Parallel()
	schema, err := reflected.Structural(reflect.TypeFor[outer]())
	if err != nil {
		t.Fatal(err)
	}
	next := schema.Properties["next"].Items.Schema
	lists := schema.Properties["list"].Items.Schema
	tables := schema.Properties["table"].AdditionalProperties.Schema
	for name, end := range map[string]struct {
		preserves *bool
		of, want  string
	}{
		"next":  {next.XPreserveUnknownFields, next.Type, "object"},
		"list":  {lists.XPreserveUnknownFields, lists.Type, ""},
		"table": {tables.XPreserveUnknownFields, tables.Type, "object"},
	} {
		if end.preserves == nil || !*end.preserves || end.of != end.want {
			t.Errorf("%s: not everything is accepted: type %q", name, end.of)
		}
	}
	_, err = reflected.Structural(reflect.TypeFor[endless]())
	if err == nil || !strings.Contains(err.Error(), "embeds itself") {
		t.Errorf("a struct that embeds itself: %v", err)
	}
}
