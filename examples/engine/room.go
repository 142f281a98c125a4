package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/kind"
)

// chat declares the API group; the server needs no other code for it. kinproc's built-in kinds are
// declared in the same way.
func chat() kind.Group {
	return kind.Group{
		Name:     groupVersion.Group,
		Versions: []kind.GroupVersion{{Version: groupVersion.Version, AddToScheme: addToScheme}},
		Kinds: []kind.Declaration{&kind.Kind[*Room]{
			Plural: "rooms",
			Default: func(r *Room) {
				if r.Spec.Seats == 0 {
					r.Spec.Seats = 10
				}
			},
			Validate: func(_ context.Context, r *Room) field.ErrorList {
				if r.Spec.Seats < 0 {
					return field.ErrorList{
						field.Invalid(field.NewPath("spec", "seats"), r.Spec.Seats, "must not be negative"),
					}
				}
				return nil
			},
			Table: kind.Table[*Room]{
				Columns: []kind.Column{
					kind.NameColumn(), {Name: "Topic"}, {Name: "Seats", Type: "integer"}, kind.AgeColumn(),
				},
				Row: func(r *Room) []any {
					return []any{r.Name, r.Spec.Topic, int64(r.Spec.Seats), kind.Age(r)}
				},
			},
			Warnings: func(_ context.Context, r, _ *Room) []string {
				if r.Spec.Topic == "" {
					return []string{fmt.Sprintf("room %s has no topic", r.Name)}
				}
				return nil
			},
			Subresources: []kind.Subresource[*Room]{
				{Name: "talk", New: func(store *genericregistry.Store) rest.Storage {
					return &talk{rooms: store, present: map[string]map[*guest]bool{}}
				}},
			},
			Generation: true,
			Fields: map[string]func(*Room) string{"spec.topic": func(r *Room) string {
				return r.Spec.Topic
			}},
		}},
	}
}
