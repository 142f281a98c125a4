package kind_test

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/chain/kind"
)

// A Recipe is an API object like any other.
type Recipe struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              RecipeSpec   `json:"spec"`
	Status            RecipeStatus `json:"status,omitempty"`
}

type RecipeSpec struct {
	Dish    string `json:"dish"`
	Minutes int32  `json:"minutes"`
}

type RecipeStatus struct {
	Cooked int32 `json:"cooked"`
}

type RecipeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Recipe `json:"items"`
}

func (r *Recipe) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (l *RecipeList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Recipe, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Recipe)
	}
	return &out
}

var kitchen = schema.GroupVersion{Group: "kitchen.example.com", Version: "v1"}

// Recipes declares recipes.
func Recipes() *kind.Kind[*Recipe] {
	return &kind.Kind[*Recipe]{
		Plural: "recipes",
		Default: func(r *Recipe) {
			if r.Spec.Minutes == 0 {
				r.Spec.Minutes = 30
			}
		},
		Validate: func(_ context.Context, r *Recipe) field.ErrorList {
			if r.Spec.Minutes < 0 {
				return field.ErrorList{
					field.Invalid(field.NewPath("spec", "minutes"), r.Spec.Minutes, "must not be negative"),
				}
			}
			return nil
		},
		Table: kind.Table[*Recipe]{
			Columns: []kind.Column{kind.NameColumn(), {Name: "Dish"}, {Name: "Minutes", Type: "integer"}},
			Row:     func(r *Recipe) []any { return []any{r.Name, r.Spec.Dish, int64(r.Spec.Minutes)} },
		},
		Status:     &kind.Status[*Recipe]{},
		Generation: true,
	}
}

func kitchenGroup(kinds ...kind.Declaration) kind.Group {
	addToScheme := func(s *runtime.Scheme) error {
		s.AddKnownTypes(kitchen, &Recipe{}, &RecipeList{})
		metav1.AddToGroupVersion(s, kitchen)
		return nil
	}
	return kind.Group{
		Name:     kitchen.Group,
		Versions: []kind.GroupVersion{{Version: kitchen.Version, AddToScheme: addToScheme}},
		Kinds:    kinds,
	}
}

// nowhere stores no objects. A server stores its objects in etcd or, like the program in
// examples/engine, in files.
type nowhere struct{ codec runtime.Codec }

func (n nowhere) GetRESTOptions(
	resource schema.GroupResource, _ runtime.Object,
) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:  storagebackend.NewDefaultConfig("/registry", n.codec).ForResource(resource),
		ResourcePrefix: resource.Resource,
		Decorator: func(*storagebackend.ConfigForResource, string, func(
			runtime.Object,
		) (string, error), func() runtime.Object,
			func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (
			storage.Interface, factory.DestroyFunc, error,
		) {
			return nil, func() {}, nil
		},
	}, nil
}

// Example declares a kind and shows what the engine makes of it.
func Example() {
	group := kitchenGroup(Recipes())
	scheme, err := kind.NewScheme(group)
	if err != nil {
		fmt.Println(err)
		return
	}
	options := nowhere{serializer.NewCodecFactory(scheme).LegacyCodec(kitchen)}

	// Each path of the group has a storage.
	resources, err := kind.NewResources(scheme, options, group)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range slices.Sorted(maps.Keys(resources[kitchen])) {
		fmt.Println(kitchen, path)
	}

	// kubectl get prints the declared columns.
	soup := &Recipe{
		ObjectMeta: metav1.ObjectMeta{Name: "soup", Namespace: "home"},
		Spec:       RecipeSpec{Dish: "Soup"},
	}
	scheme.Default(soup)
	table, err := resources[kitchen]["recipes"].(rest.TableConvertor).ConvertToTable(
		context.Background(), soup, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range table.ColumnDefinitions {
		fmt.Print("| ", c.Name, " ")
	}
	fmt.Println("|")
	for _, cell := range table.Rows[0].Cells {
		fmt.Print("| ", cell, " ")
	}
	fmt.Println("|")

	// An object can be prepared as a create request would leave it.
	preparer := kind.NewPreparer(scheme, group)
	if err := preparer.Prepare(context.Background(), soup, "cook"); err != nil {
		fmt.Println(err)
		return
	}
	key, _, err := preparer.Encode(soup, options)
	fmt.Println(key, "generation", soup.Generation, err)

	// An object that a request would not create is refused.
	tea := &Recipe{
		ObjectMeta: metav1.ObjectMeta{Name: "tea", Namespace: "home"},
		Spec:       RecipeSpec{Minutes: -3},
	}
	fmt.Println(preparer.Prepare(context.Background(), tea, "cook"))

	// Output:
	// kitchen.example.com/v1 recipes
	// kitchen.example.com/v1 recipes/status
	// | Name | Dish | Minutes |
	// | soup | Soup | 30 |
	// /registry/recipes/home/soup generation 1 <nil>
	// prepare recipes "tea": Recipe.kitchen.example.com "tea" is invalid: spec.minutes: Invalid value: -3: must not be negative
}

// A declaration that cannot work is refused when the scheme is built.
func ExampleNewScheme_refused() {
	recipes := Recipes()
	recipes.Table.Row = nil
	recipes.IndexedField = "spec.dish"
	_, err := kind.NewScheme(kitchenGroup(recipes))
	fmt.Println(err)

	// Output:
	// group "kitchen.example.com": kind Recipe: [Table.Row: Required value: Columns is set, IndexedField: Invalid value: "spec.dish": is not one of Fields]
}
