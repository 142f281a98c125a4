package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// causesShown bounds the causes.
	causesShown = 100
	// reasonsExplained bounds for how many reasons an object is read.
	reasonsExplained = 20
	// objectsShown bounds the objects that a reason names.
	objectsShown = 5
	// ownerKinds bounds the kinds whose objects are listed because they own what is not well.
	ownerKinds = 5
)

// cause is an object with all that is wrong with it and with what belongs to it.
type cause struct {
	named
	State   state    `json:"state"`
	Parts   string   `json:"parts,omitempty"` // how many of its parts are ready, such as 1/3
	Reasons []reason `json:"reasons"`

	uid types.UID
}

// reason is what is wrong with some objects that belong to a cause.
type reason struct {
	State state `json:"state"`
	// What says which objects, such as "3 pods". It is empty for the cause itself.
	What    string  `json:"what,omitempty"`
	Why     string  `json:"why"`
	Message string  `json:"message,omitempty"` // more about it
	Objects []named `json:"objects"`           // some of them
	Count   int     `json:"count"`             // how many there are
}

func isWell(s state) bool { return s == ready || s == done || s == "" }

func rankOf(s state) int { return slices.Index([]state{failing, pending, terminating}, s) }

// ownerOf returns the controller of an object, or its first owner.
func ownerOf(object metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(object)
	if owners := object.GetOwnerReferences(); owner == nil && len(owners) > 0 {
		owner = &owners[0]
	}
	return owner
}

// replicaSets own pods, but do not stand beside the Deployments that own them.
var replicaSets = kind{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet"}

// withOwners adds the objects that own those that are not well, as far up as there are some.
func (s *Server) withOwners(ctx context.Context, all []looked) ([]looked, error) {
	known, listed := map[types.UID]looked{}, map[schema.GroupKind]bool{}
	for _, o := range all {
		known[o.uid] = o
	}
	kinds, served := []kind{replicaSets}, false
	var problems []error
	for len(listed) < ownerKinds {
		owner := unknownOwner(all, known, listed)
		if owner == nil {
			break
		}
		version, _ := schema.ParseGroupVersion(owner.APIVersion)
		wanted := schema.GroupKind{Group: version.Group, Kind: owner.Kind}
		find := func() int {
			return slices.IndexFunc(kinds, func(k kind) bool {
				return k.Group == wanted.Group && k.Kind == wanted.Kind
			})
		}
		i := find()
		if i < 0 && !served {
			more, err := s.kinds(ctx)
			problems = append(problems, err)
			kinds, served = append(kinds, more...), true
			i = find()
		}
		listed[wanted] = true
		if i < 0 {
			continue
		}
		list, err := s.metadata.Resource(kinds[i].resource()).
			List(ctx, metav1.ListOptions{Limit: listLimit})
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, each := range list.Items {
			o := kinds[i].looked(each.ObjectMeta, "", "")
			all = append(all, o)
			known[o.uid] = o
		}
	}
	return all, errors.Join(problems...)
}

// unknownOwner returns an owner of an object that is not well, or an owner of such an owner, whose
// kind has not been listed.
func unknownOwner(
	all []looked, known map[types.UID]looked, listed map[schema.GroupKind]bool,
) *metav1.OwnerReference {
	for _, o := range all {
		if isWell(o.state) {
			continue
		}
		top := ancestors(o, known)
		owner := top[len(top)-1].owner
		if owner == nil {
			continue
		}
		version, _ := schema.ParseGroupVersion(owner.APIVersion)
		if !listed[schema.GroupKind{Group: version.Group, Kind: owner.Kind}] {
			return owner
		}
	}
	return nil
}

// ancestors returns an object, its owner, the owner of that one, and so on.
func ancestors(o looked, known map[types.UID]looked) []looked {
	line := []looked{o}
	for o.owner != nil && len(line) < ownersAbove {
		owner, ok := known[o.owner.UID]
		if !ok {
			break
		}
		line = append(line, owner)
		o = owner
	}
	return line
}

// causesOf groups the objects that are not well by what they belong to: their highest owner, their
// namespace if that is being deleted, or the node that they run on if that fails. It also returns
// how many objects are not well.
func causesOf(all []looked) (causes []cause, wrong int) {
	known := map[types.UID]looked{}
	deleted, failed := map[string]looked{}, map[string]looked{}
	for _, o := range all {
		known[o.uid] = o
		switch {
		case o.Resource == "namespaces" && o.state == terminating:
			deleted[o.Name] = o
		case o.Resource == nodes.Resource && o.state == failing:
			failed[o.Name] = o
		}
	}
	members, roots := map[types.UID][]looked{}, map[types.UID]looked{}
	told := map[types.UID]bool{} // what it owns says why it is not well
	for _, o := range all {
		if isWell(o.state) {
			continue
		}
		wrong++
		line := ancestors(o, known)
		root := line[len(line)-1]
		for _, owner := range line[1:] {
			told[owner.uid] = told[owner.uid] || o.state != terminating
		}
		if namespace, ok := deleted[o.Inside]; ok && o.state == terminating {
			root = namespace
		} else if node, ok := failed[o.node]; ok && o.state != failing {
			root = node
		}
		members[root.uid], roots[root.uid] = append(members[root.uid], o), root
	}
	for uid, list := range members {
		root := roots[uid]
		c := cause{named: root.named, State: terminating, Parts: root.parts, uid: uid}
		for _, o := range list {
			if rankOf(o.state) < rankOf(c.State) {
				c.State = o.state
			}
			if !told[o.uid] {
				c.add(o)
			}
		}
		c.sort()
		causes = append(causes, c)
	}
	slices.SortFunc(causes, func(a, b cause) int {
		return cmp.Or(cmp.Compare(rankOf(a.State), rankOf(b.State)), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Inside, b.Inside), cmp.Compare(a.Name, b.Name), cmp.Compare(a.uid, b.uid))
	})
	return causes, wrong
}

// add adds an object to those that are not well for the same reason.
func (c *cause) add(o looked) {
	c.merge(reason{State: o.state, Why: o.why, Objects: []named{o.named}, Count: 1})
}

// merge adds a reason to a reason that is the same for other objects of the kind.
func (c *cause) merge(r reason) {
	kind := r.Objects[0].Kind
	i := slices.IndexFunc(c.Reasons, func(other reason) bool {
		return other.State == r.State && other.Why == r.Why && other.Objects[0].Kind == kind
	})
	if i < 0 {
		c.Reasons = append(c.Reasons, r)
		i = len(c.Reasons) - 1
	} else {
		same := &c.Reasons[i]
		same.Count += r.Count
		same.Objects = append(same.Objects, r.Objects...)
		same.Objects = same.Objects[:min(len(same.Objects), objectsShown)]
		same.Message = cmp.Or(same.Message, r.Message)
	}
	c.Reasons[i].What = c.what(c.Reasons[i])
}

// what says which objects a reason is about.
func (c *cause) what(r reason) string {
	one := r.Objects[0]
	switch {
	case r.Count == 1 && one == c.named:
		return ""
	case r.Count == 1:
		return "1 " + strings.ToLower(one.Kind)
	}
	return strconv.Itoa(r.Count) + " " + one.Resource
}

// sort puts the reasons for failures first, then that of the cause itself, and those of many
// objects before others.
func (c *cause) sort() {
	slices.SortStableFunc(c.Reasons, func(a, b reason) int {
		return cmp.Or(cmp.Compare(rankOf(a.State), rankOf(b.State)),
			cmp.Compare(min(len(a.What), 1), min(len(b.What), 1)), cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Why, b.Why))
	})
}
