package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/kinproc/kinproc/conformance/internal/exchanges"
)

// oddCase is a recorded case under another name in which some of the requests are odd.
type oddCase struct {
	exchanges.Case
	// id is part of the name of every object that the case creates.
	id string
	// meant holds the steps whose recorded request is answered differently by Kubernetes 1.37.
	meant map[int]bool
	// odd says for each step what is odd about it, or is empty if nothing is.
	odd []string
}

// generator generates odd cases.
type generator struct {
	recordings []*exchanges.Recording
	cases      []recordedCase
	exceptions map[string]string
}

type recordedCase struct {
	recording *exchanges.Recording
	index     int
}

func newGenerator(recordings []*exchanges.Recording, exceptions map[string]string) *generator {
	g := &generator{recordings: recordings, exceptions: exceptions}
	for _, r := range recordings {
		if r.Name == "00-discovery" { // discovery is compared as a whole in another test
			continue
		}
		for i := range r.Cases {
			g.cases = append(g.cases, recordedCase{r, i})
		}
	}
	return g
}

// harmful matches the recordings whose objects would affect how the server handles other requests:
// their writes are sent as dry runs.
var harmful = regexp.MustCompile(`^(admissionregistration|flowcontrol|apiregistration)`)

// customGroup matches the API group of a custom resource. A definition can be renamed only through
// its group.
var customGroup = regexp.MustCompile(`\b(cr[a-z]+|[a-z]+)\.example\.com\b`)

// make generates case number n, which is the same for the same seed and number. The names of its
// objects begin with name.
func (g *generator) make(seed, n uint64, name string) (*oddCase, error) {
	random := rand.New(rand.NewPCG(seed, n)) // must be repeatable
	chosen := g.cases[random.IntN(len(g.cases))]
	recorded := chosen.recording.Cases[chosen.index]
	data, err := json.Marshal(recorded)
	if err != nil {
		return nil, err
	}
	c := &oddCase{id: name, meant: map[int]bool{}}
	prefix := strings.ReplaceAll(strings.ReplaceAll(chosen.recording.Name, ".k8s.io", ""), ".", "-") +
		"-" + recorded.Name
	if recorded.Namespace != "" {
		prefix = recorded.Namespace
	}
	data = bytes.ReplaceAll(data, []byte(prefix), []byte(name))
	if strings.HasPrefix(chosen.recording.Name, "apiextensions") ||
		strings.HasPrefix(chosen.recording.Name, "example.com") {
		data = customGroup.ReplaceAll(data, []byte("$1-"+name+".example.com"))
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // 1 is not 1.0
	if err := decoder.Decode(&c.Case); err != nil {
		return nil, err
	}
	c.Name = chosen.recording.Name + "/" + recorded.Name
	c.odd = make([]string, len(c.Steps))
	for i := range c.Steps {
		_, c.meant[i] =
			g.exceptions[exception{File: chosen.recording.Name, Case: recorded.Name, Step: i}.String()]
		if random.IntN(2) == 0 {
			c.odd[i] = (&mutation{random, &c.Steps[i].Request}).apply()
		}
	}
	// Add a few requests about what exists now.
	for range random.IntN(4) {
		if len(c.Steps) == 0 {
			break
		}
		request := clone(c.Steps[random.IntN(len(c.Steps))].Request)
		request.Poll = nil
		c.odd = append(c.odd, (&mutation{random, &request}).apply())
		c.Steps = append(c.Steps, exchanges.Step{Request: request})
	}
	for i := range c.Steps {
		c.tame(&c.Steps[i].Request, harmful.MatchString(chosen.recording.Name))
	}
	return c, nil
}

// tame makes a request finite, and harmless to objects that the case did not create.
func (c *oddCase) tame(r *exchanges.Request, harmful bool) {
	add := func(parameter string) {
		separator := "?"
		if strings.Contains(r.Path, "?") {
			separator = "&"
		}
		r.Path += separator + parameter
	}
	if strings.Contains(r.Path, "watch") {
		r.Path = timeoutSeconds.ReplaceAllString(r.Path, "")
		add("timeoutSeconds=1")
	}
	if write := r.Method != http.MethodGet && r.Method != http.MethodHead; write && harmful {
		r.Path = dryRun.ReplaceAllString(r.Path, "")
		add("dryRun=All")
	}
	if r.Method == http.MethodDelete && !c.owns(r) {
		r.Method = http.MethodGet
	}
	if r.Poll != nil {
		r.Poll.Timeout = new(2.0)
	}
}

var (
	timeoutSeconds = regexp.MustCompile(`timeoutSeconds=[^&]*&?`)
	dryRun         = regexp.MustCompile(`dryRun=[^&]*&?`)
)

// owns reports whether a request concerns only objects that the case created.
func (c *oddCase) owns(r *exchanges.Request) bool {
	path, query, _ := strings.Cut(r.Path, "?")
	if strings.Contains(path, c.id) {
		return true
	}
	return strings.Count(query, "elector=") == 1 &&
		strings.Contains(query, "labelSelector=case%3D"+c.id) &&
		!strings.Contains(query, "case%3D"+c.id+"%2C")
}

func clone(r exchanges.Request) exchanges.Request {
	r.Headers = maps.Clone(r.Headers)
	r.Body = cloneValue(r.Body)
	if r.BodyFrom != nil {
		from := *r.BodyFrom
		from.Set, from.Remove = slices.Clone(from.Set), slices.Clone(from.Remove)
		r.BodyFrom = &from
	}
	return r
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, below := range v {
			c[k] = cloneValue(below)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, below := range v {
			c[i] = cloneValue(below)
		}
		return c
	}
	return v
}

// mutation makes a request odd.
type mutation struct {
	*rand.Rand
	request *exchanges.Request
}

func one[T any](m *mutation, list []T) T { return list[m.IntN(len(list))] }

// apply makes the request odd and returns a description of what it did.
func (m *mutation) apply() string {
	m.request.Poll = nil
	kinds := []struct {
		name   string
		weight int
		do     func()
	}{
		{"field", 40, m.field},
		{"query", 24, m.query},
		{"header", 14, m.header},
		{"patch", 10, m.patch},
		{"path", 10, m.path},
		{"method", 6, m.method},
		{"body", 6, m.body},
		{"elsewhere", 4, func() { m.request.Path = one(m, oddPaths()) }},
		{"size", 1, m.size},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	var done []string
	for range 1 + m.IntN(2) {
		n := m.IntN(total)
		for _, k := range kinds {
			if n -= k.weight; n < 0 {
				k.do()
				done = append(done, k.name)
				break
			}
		}
	}
	return strings.Join(done, "+")
}

func (m *mutation) query() {
	for range 1 + m.IntN(2) {
		separator := "?"
		if strings.Contains(m.request.Path, "?") {
			separator = "&"
		}
		m.request.Path += separator + one(m, oddQueries())
	}
}

func (m *mutation) setHeader(name, value string) {
	if m.request.Headers == nil {
		m.request.Headers = map[string]*string{}
	}
	m.request.Headers[name] = &value
}

func (m *mutation) header() {
	pair := one(m, oddHeaders())
	m.setHeader(pair[0], pair[1])
}

func (m *mutation) method() { m.request.Method = one(m, oddMethods()) }

func (m *mutation) path() {
	path, query, queried := strings.Cut(m.request.Path, "?")
	segments := strings.Split(path, "/")
	i := 1 + m.IntN(len(segments)-1)
	switch m.IntN(7) {
	case 0:
		segments[i] = one(m, oddSegments())
	case 1:
		segments = slices.Insert(segments, i, one(m, oddSegments()))
	case 2:
		segments = slices.Delete(segments, i, i+1)
	case 3:
		segments = append(segments, one(m, subresources()))
	case 4:
		segments = append(segments, one(m, oddSegments()))
	case 5: // the last segment is usually the name
		segments[len(segments)-1] = one(m, oddSegments())
	case 6: // an unnecessary escape
		if s := segments[i]; s != "" && !strings.Contains(s, "%") && !strings.Contains(s, "$") {
			segments[i] = fmt.Sprintf("%%%02x", s[0]) + s[1:]
		}
	}
	m.request.Path = strings.Join(segments, "/")
	if !strings.HasPrefix(m.request.Path, "/") || strings.HasPrefix(m.request.Path, "//") {
		m.request.Path = "/" + strings.TrimLeft(m.request.Path, "/")
	}
	if queried {
		m.request.Path += "?" + query
	}
}

func (m *mutation) body() {
	m.request.BodyFrom, m.request.BodyPad = nil, nil
	m.request.Body = one(m, oddBodies())
	if m.IntN(3) > 0 {
		m.setHeader("Content-Type",
			one(m, []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}))
	}
}

var patchTypes = []string{
	"application/json-patch+json", "application/merge-patch+json",
	"application/strategic-merge-patch+json", "application/apply-patch+yaml",
}

// patch turns a request about an object into a patch.
func (m *mutation) patch() {
	path, _, _ := strings.Cut(m.request.Path, "?")
	if m.request.Method == http.MethodPost {
		path += "/x"
	}
	*m.request = exchanges.Request{Method: http.MethodPatch, Path: path, Body: one(m, oddBodies())}
	m.setHeader("Content-Type", one(m, patchTypes))
	if m.IntN(4) == 0 {
		m.request.Path += "?fieldManager=m&force=true"
	}
}

// size makes the body larger than it may be.
func (m *mutation) size() {
	if _, ok := m.request.Body.(map[string]any); !ok {
		return
	}
	m.request.BodyPad = &struct {
		Pointer string `json:"pointer"`
		Size    int    `json:"size"`
	}{
		one(m, []string{"/metadata/annotations/pad", "/metadata/labels/pad", "/metadata/name", "/pad"}),
		one(m, []int{1000, 300_000, 3_200_000}),
	}
}

// field changes a field of the object in the body: one that is set, or one that any object may
// have.
func (m *mutation) field() {
	object, ok := m.request.Body.(map[string]any)
	if from := m.request.BodyFrom; from != nil {
		if m.IntN(4) == 0 {
			from.Remove = append(from.Remove, one(m, oddFields()))
		} else {
			from.Set = append(from.Set, [2]any{one(m, oddFields()), m.value(nil)})
		}
		return
	}
	if !ok {
		return
	}
	if m.IntN(4) == 0 {
		setField(object, strings.Split(one(m, oddFields()), "/")[1:], m.value(nil))
		return
	}
	m.change(object)
}

// setField sets the value at a path, creating the objects on the way.
func setField(object map[string]any, path []string, value any) {
	if len(path) == 1 {
		object[path[0]] = value
		return
	}
	if path[1] == "0" {
		object[path[0]] = []any{value}
		return
	}
	below, ok := object[path[0]].(map[string]any)
	if !ok {
		below = map[string]any{}
		object[path[0]] = below
	}
	setField(below, path[1:], value)
}

// place is the location of a value: a key of an object or an index of a list.
type place struct {
	object map[string]any
	key    string
	list   []any
	index  int
}

func (p place) value() any {
	if p.object != nil {
		return p.object[p.key]
	}
	return p.list[p.index]
}

func (p place) set(v any) {
	if p.object != nil {
		p.object[p.key] = v
	} else {
		p.list[p.index] = v
	}
}

// places returns all places below v in a stable order.
func places(v any) []place {
	var all []place
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			all = append(append(all, place{object: v, key: k}), places(v[k])...)
		}
	case []any:
		for i := range v {
			all = append(append(all, place{list: v, index: i}), places(v[i])...)
		}
	}
	return all
}

func (m *mutation) change(object map[string]any) {
	all := places(object)
	if len(all) == 0 {
		return
	}
	at := one(m, all)
	switch m.IntN(8) {
	case 0: // remove it
		if at.object != nil {
			delete(at.object, at.key)
		} else {
			at.set(nil)
		}
	case 1: // replace it with another value of the same object
		at.set(cloneValue(one(m, all).value()))
	case 2: // add to it
		switch v := at.value().(type) {
		case map[string]any:
			v[one(m, oddStrings())] = m.value(nil)
		case []any:
			at.set(append(slices.Clone(v), m.value(nil)))
		default:
			at.set([]any{v, v})
		}
	case 3: // duplicate the first element
		if list, ok := at.value().([]any); ok && len(list) > 0 {
			at.set(append(slices.Clone(list), cloneValue(list[0])))
			return
		}
		at.set(m.value(at.value()))
	case 4: // rename the key
		if at.object != nil {
			v := at.value()
			delete(at.object, at.key)
			at.object[one(m,
				[]string{strings.ToUpper(at.key), strings.ToLower(at.key), at.key + "x", "foo", ""})] = v
			return
		}
		at.set(m.value(at.value()))
	default:
		at.set(m.value(at.value()))
	}
}

// value returns an odd value, usually of the same type as the current one.
func (m *mutation) value(is any) any {
	kind := m.IntN(6)
	if m.IntN(3) > 0 {
		switch is.(type) {
		case string:
			kind = 0
		case json.Number:
			kind = 1
		case bool:
			kind = 2
		}
	}
	switch kind {
	case 0:
		return one(m, oddStrings())
	case 1:
		return one(m, oddNumbers())
	case 2:
		return m.IntN(2) == 0
	case 3:
		return one(m, []any{
			[]any{},
			[]any{nil},
			[]any{""},
			[]any{"a", "a"},
			[]any{map[string]any{}},
			[]any{json.Number("1")},
			[]any{[]any{}},
		})
	case 4:
		return one(m, []any{
			map[string]any{},
			map[string]any{"": ""},
			map[string]any{"a": "b"},
			map[string]any{"a": nil},
			map[string]any{"name": "a"},
			map[string]any{"matchLabels": map[string]any{"a": "b"}},
			map[string]any{"key": "a", "operator": "In"},
		})
	default:
		return nil
	}
}
