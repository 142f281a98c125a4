package rbac

import (
	"errors"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

const (
	// mostWork is how many comparisons the library may do, and mostCombinations how many rules it
	// may make: one for each combination of a verb, a group, a resource and a name.
	mostWork         = 100_000_000
	mostCombinations = 100_000
	// mostClasses bounds the same for classes of combinations.
	mostClasses = 10_000_000
)

// affordable reports whether the library can compare all combinations of what rules allow. A few
// lists of a thousand elements each have billions.
func affordable(held, rules []rbacv1.PolicyRule) bool {
	size, combinations := 1.0, 0.0
	for _, r := range held {
		size += float64(len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) +
			len(r.NonResourceURLs))
	}
	for _, r := range rules {
		combinations += float64(len(r.Verbs)) * (float64(len(r.APIGroups))*float64(len(r.Resources))*
			float64(max(1, len(r.ResourceNames))) + float64(len(r.NonResourceURLs)))
	}
	return combinations <= mostCombinations && combinations*size <= mostWork
}

var (
	errTooMany = errors.New("the rules have too many combinations of verbs, groups, resources and " +
		"names to compare them with those of the user; divide them among several roles")
	errMissing = errors.New("the rules have too many combinations to list those that are missing")
)

// missing returns the rules that the held rules do not allow. The error says that there are some,
// or may be some, but too many to list.
func missing(held, rules []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, error) {
	if affordable(held, rules) {
		_, lacking := validation.Covers(held, rules)
		return lacking, nil
	}
	h := newHolding(held)
	for _, rule := range rules {
		if ok, err := h.covers(rule); err != nil {
			return nil, err
		} else if !ok {
			return nil, errMissing
		}
	}
	return nil, nil
}

// holding is the rules that a user holds. It finds those that match a value.
type holding struct {
	count                          int
	verbs, groups, resources, urls values
	names                          values
	stars                          []star // of urls
}

type star struct {
	prefix string
	rule   int
}

// values are those that each rule lists. Any has the rules that match all values.
type values struct {
	listed map[string][]int
	any    set
}

func newHolding(rules []rbacv1.PolicyRule) *holding {
	h := &holding{count: len(rules)}
	for _, v := range []*values{&h.verbs, &h.groups, &h.resources, &h.urls, &h.names} {
		*v = values{map[string][]int{}, newSet(len(rules))}
	}
	for i, r := range rules {
		h.verbs.add(i, r.Verbs, rbacv1.VerbAll)
		h.groups.add(i, r.APIGroups, rbacv1.APIGroupAll)
		h.resources.add(i, r.Resources, rbacv1.ResourceAll)
		h.names.add(i, r.ResourceNames, "")
		if len(r.ResourceNames) == 0 {
			h.names.any.add(i)
		}
		h.urls.add(i, r.NonResourceURLs, "")
		for _, url := range r.NonResourceURLs {
			if strings.HasSuffix(url, "*") {
				h.stars = append(h.stars, star{strings.TrimRight(url, "*"), i})
			}
		}
	}
	return h
}

// add adds the values of a rule. If all is not empty, it stands for all values.
func (v *values) add(rule int, list []string, all string) {
	for _, value := range list {
		if all != "" && value == all {
			v.any.add(rule)
		}
		v.listed[value] = append(v.listed[value], rule)
	}
}

func (v *values) match(value string, s set) {
	for i, word := range v.any {
		s[i] |= word
	}
	for _, rule := range v.listed[value] {
		s.add(rule)
	}
}

func (h *holding) matchResource(value string, s set) {
	h.resources.match(value, s)
	if _, name, ok := strings.Cut(value, "/"); ok {
		h.resources.match("*/"+name, s)
	}
}

func (h *holding) matchURL(value string, s set) {
	h.urls.match(value, s)
	for _, star := range h.stars {
		if strings.HasPrefix(value, star.prefix) {
			s.add(star.rule)
		}
	}
}

// covers reports whether the held rules allow everything that a rule does. What they do not tell
// apart is compared only once.
func (h *holding) covers(r rbacv1.PolicyRule) (bool, error) {
	lists := len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames)
	if float64(lists)*float64(h.count)/64+
		float64(len(r.NonResourceURLs))*float64(len(h.stars)+h.count/64) > mostWork {
		return false, errTooMany
	}
	verbs, unnamed := h.classes(r.Verbs, h.verbs.match), []set{h.names.any}
	names := unnamed
	if len(r.ResourceNames) > 0 {
		names = h.classes(r.ResourceNames, h.names.match)
	}
	ok, err := h.meet(verbs, h.classes(r.APIGroups, h.groups.match),
		h.classes(r.Resources, h.matchResource), names)
	if !ok || err != nil {
		return ok, err
	}
	return h.meet(verbs, h.classes(r.NonResourceURLs, h.matchURL), unnamed)
}

// classes returns the different sets of held rules that match one of the values.
func (h *holding) classes(list []string, match func(value string, s set)) []set {
	var classes []set
	seen := map[string]bool{}
	for _, value := range list {
		class := newSet(h.count)
		match(value, class)
		if key := class.key(); !seen[key] {
			seen[key] = true
			classes = append(classes, class)
		}
	}
	return classes
}

// meet reports whether for each choice of one class per list, some rule is in all of them.
func (h *holding) meet(lists ...[]set) (bool, error) {
	work := float64(h.count/64 + 1)
	for _, classes := range lists {
		work *= float64(len(classes))
	}
	if work > mostClasses {
		return false, errTooMany
	}
	all := newSet(h.count)
	for i := range h.count {
		all.add(i)
	}
	return all.meets(lists), nil
}

// set is a set of held rules, one bit each.
type set []uint64

func newSet(n int) set { return make(set, n/64+1) }

func (s set) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s set) key() string {
	var b strings.Builder
	for _, word := range s {
		for range 8 {
			b.WriteByte(byte(word))
			word >>= 8
		}
	}
	return b.String()
}

// meets reports whether for each choice of one class per list, some rule is in s and all of them.
func (s set) meets(lists [][]set) bool {
	if len(lists) == 0 {
		for _, word := range s {
			if word != 0 {
				return true
			}
		}
		return false
	}
	for _, class := range lists[0] {
		both := make(set, len(s))
		for i := range s {
			both[i] = s[i] & class[i]
		}
		if !both.meets(lists[1:]) {
			return false
		}
	}
	return true
}
