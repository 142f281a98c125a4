package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"
)

const (
	// ownersAbove bounds how far the owners of an object are followed.
	ownersAbove = 10
	// treeLimit bounds the objects in a tree.
	treeLimit = 500
)

// branch is an object with those that it owns.
type branch struct {
	Group     string    `json:"group"`
	Version   string    `json:"version"`
	Resource  string    `json:"resource"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	State     state     `json:"state,omitempty"`
	Here      bool      `json:"here,omitempty"` // it is the object that the tree is about
	Owned     []*branch `json:"owned,omitempty"`
	// Missing is why the object is not there, though another one names it as its owner.
	Missing string `json:"missing,omitempty"`

	uid types.UID
}

// tree is the tree of owners and dependents of an object.
type tree struct {
	Root *branch `json:"root"`
	// More is set if the tree has more objects than are shown.
	More bool `json:"more,omitempty"`
}

// serveTree returns the tree that an object is in.
func (s *Server) serveTree(w http.ResponseWriter, r *http.Request) {
	selected, err := selectionOf(r.URL.Query())
	if err == nil && selected.name == "" {
		err = badInput("A tree needs the name of an object.")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	t, err := s.tree(r.Context(), selected)
	if err != nil {
		refuse(w, http.StatusBadGateway, "The tree cannot be shown: "+err.Error())
		return
	}
	sendJSON(w, t)
}

func (s *Server) tree(ctx context.Context, selected selection) (*tree, error) {
	kinds, err := s.kinds(ctx)
	if err != nil {
		return nil, err
	}
	root, above, here, err := s.owners(ctx, kinds, selected)
	if err != nil {
		return nil, err
	}
	owned, err := s.ownedObjects(ctx, kinds, root.Namespace, selected.at)
	if err != nil {
		return nil, err
	}
	t := &tree{Root: root}
	seen := map[types.UID]bool{}
	n := 0
	var grow func(b *branch)
	grow = func(b *branch) {
		seen[b.uid] = true
		b.Here = b.uid == here
		for _, child := range owned[b.uid] {
			if seen[child.uid] {
				continue
			}
			if n++; n > treeLimit {
				t.More = true
				return
			}
			grow(child)
			b.Owned = append(b.Owned, child)
		}
	}
	if root.Missing != "" {
		root.Owned = []*branch{above}
		root = above
	}
	grow(root)
	if root.State == "" {
		root.State = s.stateOfOne(ctx, root, selected.at)
	}
	return t, nil
}

// owners returns the highest owner of an object, and the object's UID. If that owner does not
// exist, it also returns the one below.
func (s *Server) owners(
	ctx context.Context, kinds []kind, selected selection,
) (root, above *branch, here types.UID, err error) {
	inside := selected.inside
	for range ownersAbove {
		body, err := s.getObject(ctx, selected, inside)
		if err != nil && root == nil {
			return nil, nil, "", err
		}
		if err != nil {
			missing := &branch{
				Group: selected.resource.Group, Version: selected.resource.Version,
				Resource: selected.resource.Resource, Kind: selected.resource.Resource,
				Namespace: inside, Name: selected.name, Missing: err.Error(),
			}
			return missing, root, here, nil
		}
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(body, &object); err != nil {
			return nil, nil, "", fmt.Errorf("read the object: %w", err)
		}
		root = &branch{
			Group: selected.resource.Group, Version: selected.resource.Version,
			Resource: selected.resource.Resource, Kind: object.Kind, Namespace: object.Namespace,
			Name: object.Name, uid: object.UID,
		}
		here = cmp.Or(here, object.UID)
		owner := ownerOf(&object)
		if owner == nil {
			break
		}
		version, _ := schema.ParseGroupVersion(owner.APIVersion)
		i := slices.IndexFunc(kinds, func(k kind) bool {
			return k.Group == version.Group && k.Kind == owner.Kind
		})
		if i < 0 {
			break
		}
		selected.resource, selected.name = kinds[i].resource(), owner.Name
		if !kinds[i].Namespaced {
			inside = ""
		}
	}
	return root, nil, here, nil
}

// ownedObjects returns the objects in a namespace, or in all, by the UIDs of their owners.
func (s *Server) ownedObjects(
	ctx context.Context, kinds []kind, namespace, at string,
) (map[types.UID][]*branch, error) {
	owned := map[types.UID][]*branch{}
	var mu sync.Mutex
	err := s.lists(ctx, kinds, selection{namespace: namespace, at: at}, func(k kind, t table) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range t.Rows {
			for _, owner := range r.metadata.OwnerReferences {
				owned[owner.UID] = append(owned[owner.UID], &branch{
					Group: k.Group, Version: k.Version, Resource: k.Resource, Kind: k.Kind,
					Namespace: r.Namespace, Name: r.Name, State: r.State, uid: r.metadata.UID,
				})
			}
		}
	})
	for _, list := range owned {
		slices.SortFunc(list, func(a, b *branch) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
	}
	return owned, err
}

// lists calls each with the selected objects of each kind, but no events. A kind that cannot be
// listed is left out. Each is called concurrently.
func (s *Server) lists(
	ctx context.Context, kinds []kind, selected selection, each func(kind, table),
) error {
	var listing errgroup.Group
	listing.SetLimit(countsAtOnce)
	for _, k := range kinds {
		if k.Resource == events.Resource || selected.namespace != "" && !k.Namespaced {
			continue
		}
		listing.Go(func() error {
			of := selected
			of.resource = k.resource()
			t, err := s.list(ctx, of)
			if err == nil {
				each(k, t)
			}
			return ctx.Err()
		})
	}
	return listing.Wait()
}

// stateOfOne returns the state of one object.
func (s *Server) stateOfOne(ctx context.Context, b *branch, at string) state {
	one := selection{
		resource: schema.GroupVersionResource{
			Group: b.Group, Version: b.Version, Resource: b.Resource,
		},
		namespace: b.Namespace, fields: nameSelector(b.Name), at: at,
	}
	t, err := s.list(ctx, one)
	if err != nil || len(t.Rows) != 1 {
		return ""
	}
	return t.Rows[0].State
}
