package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/kinproc/kinproc/chain/history"
)

// lookedAt returns an object of the namespace default, such as "pods web-1", that belongs to the
// object with the UID of its owner.
func lookedAt(object, owner string, s state, why string) looked {
	resource, name, _ := strings.Cut(object, " ")
	kinds := map[string]kind{
		"pods": watched[0].kind, "deployments": watched[1].kind, "replicasets": replicaSets,
		"nodes": watched[6].kind, "namespaces": watched[7].kind,
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(object)}
	if resource == "nodes" || resource == "namespaces" {
		meta.Namespace = ""
	}
	if owner != "" {
		meta.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner)}}
	}
	return kinds[resource].looked(meta, s, why)
}

// told returns causes as lines.
func told(causes []cause) string {
	var b strings.Builder
	for _, c := range causes {
		fmt.Fprintf(&b, "%s %s %s", c.State, c.Kind, c.Name)
		for _, r := range c.Reasons {
			fmt.Fprintf(&b, "; %s|%s", r.What, r.Why)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestCausesAreOwners(t *testing.T) {
	t.Parallel()
	all := []looked{
		lookedAt("deployments rolling", "", pending, "1/3 ready"),
		lookedAt("replicasets rolling-1", "deployments rolling", "", ""),
		lookedAt("pods rolling-1-a", "replicasets rolling-1", pending, "ContainerCreating"),
		lookedAt("pods rolling-1-b", "replicasets rolling-1", ready, "Running"),
		lookedAt("deployments broken", "", pending, "0/3 ready"),
		lookedAt("replicasets broken-1", "deployments broken", "", ""),
		lookedAt("pods broken-1-a", "replicasets broken-1", failing, "ImagePullBackOff"),
		lookedAt("pods broken-1-b", "replicasets broken-1", failing, "ImagePullBackOff"),
		lookedAt("pods broken-1-c", "replicasets broken-1", pending, "Pending"),
		// The deployment itself says why: it has no pods.
		lookedAt("deployments refused", "", pending, "0/1 ready"),
		lookedAt("pods alone", "", failing, "Error"),
		lookedAt("pods orphan", "replicasets gone", failing, "Error"),
		lookedAt("deployments fine", "", ready, "1/1 ready"),
	}
	causes, wrong := causesOf(all)
	const want = `failing Deployment broken; 2 pods|ImagePullBackOff; 1 pod|Pending
failing Pod alone; |Error
failing Pod orphan; |Error
pending Deployment refused; |0/1 ready
pending Deployment rolling; 1 pod|ContainerCreating
`
	if got := told(causes); got != want || wrong != 9 {
		t.Errorf("%d objects are not well because of\n%swant 9 and\n%s", wrong, got, want)
	}
}

func TestCausesAreNamespacesAndNodes(t *testing.T) {
	t.Parallel()
	leaving := lookedAt("pods leaving", "", terminating, "being deleted")
	leaving.Inside = "old"
	lost := lookedAt("pods lost", "", pending, "Running")
	lost.node = "one"
	own := lookedAt("pods own", "", failing, "Error")
	own.node = "one"
	causes, _ := causesOf([]looked{
		leaving, lost, own, lookedAt("namespaces old", "", terminating, "being deleted"),
		lookedAt("nodes one", "", failing, "NotReady"),
	})
	const want = `failing Node one; |NotReady; 1 pod|Running
failing Pod own; |Error
terminating Namespace old; |being deleted; 1 pod|being deleted
`
	if got := told(causes); got != want {
		t.Errorf("the causes are\n%swant\n%s", got, want)
	}
}

func TestCausesNameFewObjects(t *testing.T) {
	t.Parallel()
	all := []looked{lookedAt("deployments web", "", pending, "0/50 ready")}
	for i := range 50 {
		all = append(all, lookedAt(fmt.Sprintf("pods web-%d", i), "deployments web", failing, "Error"))
	}
	causes, _ := causesOf(all)
	if r := causes[0].Reasons; len(r) != 1 || r[0].Count != 50 || len(r[0].Objects) != objectsShown {
		t.Errorf("the reasons are %+v", r)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ status, why, message string }{
		{`containerStatuses: [{name: a, image: "web:404",
			state: {waiting: {reason: ErrImagePull, message: not found}}}]`,
			"image web:404 cannot be pulled", "not found"},
		{`containerStatuses: [{name: a, image: "web:404", state: {waiting: {
			reason: ImagePullBackOff, message: 'Back-off pulling image "web:404"'}}}]`,
			"image web:404 cannot be pulled", ""},
		{`containerStatuses: [{name: a, image: ":", state: {waiting: {reason: InvalidImageName}}}]`,
			`":" is not the name of an image`, ""},
		{`containerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff, message: 5s}},
			lastState: {terminated: {exitCode: 3, message: no file}}}]`,
			"container a ends with exit code 3, again and again", "no file"},
		{`containerStatuses: [{name: a, state: {terminated: {exitCode: 137, reason: OOMKilled}}}]`,
			"container a is out of memory", ""},
		{`containerStatuses: [{name: a, state: {waiting: {reason: CreateContainerConfigError,
			message: no such Secret}}}]`, "container a: CreateContainerConfigError", "no such Secret"},
		{`initContainerStatuses: [{name: first, state: {waiting: {reason: PodInitializing}}}]`,
			"the row", ""},
		{`containerStatuses: [{name: a, ready: false, state: {running: {startedAt: now}}}]`,
			"container a runs and is not ready", ""},
		{`conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: no node}]`,
			"cannot be scheduled", "no node"},
		{`conditions: [{type: Available, status: "False", message: not enough}]`,
			"the row", "not enough"},
		{`conditions: [{type: Available, status: "True", message: enough}]`, "the row", ""},
	} {
		var object unstructured.Unstructured
		text := "status: {" + strings.ReplaceAll(c.status, "\t", "") + "}"
		document, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(document, &object.Object); err != nil {
			t.Fatal(err)
		}
		if why, message := explain(object, "the row"); why != c.why || message != c.message {
			t.Errorf("%s is %q, %q, want %q, %q", c.status, why, message, c.why, c.message)
		}
	}
}

func TestChangesAreFolded(t *testing.T) {
	t.Parallel()
	kubelet := &history.Writer{User: "system:node:one", UserAgent: "kubelet/v1 (kinproc)"}
	update := func(resource, name string, w *history.Writer, paths ...string) history.Version {
		v := history.Version{
			Event: history.Updated, Resource: resource, Namespace: "default", Name: name, Writer: w,
		}
		for _, path := range paths {
			v.Changes = append(v.Changes, history.Change{Path: path, After: []byte(`"x"`)})
		}
		return v
	}
	quota := update("resourcequotas", "small", kubelet, ".status.used.pods")
	for _, v := range []history.Version{
		quota, update("leases.coordination.k8s.io", "one", kubelet, ".spec.renewTime"),
		update("events", "one", kubelet),
	} {
		if !isNoise(v) {
			t.Errorf("%s is shown", v.Resource)
		}
	}
	if isNoise(update("resourcequotas", "small", kubelet, ".spec.hard.pods")) {
		t.Error("that a quota is another one is not shown")
	}
	changes := fold([]history.Version{
		update("pods", "web-2", kubelet, ".status.containerStatuses[0].containerID", ".status.phase"),
		update("pods", "web-1", kubelet, ".status.containerStatuses", ".status.phase"),
		update("pods", "web-1", kubelet, ".status.phase"),
		update("pods", "web-1", &history.Writer{User: "jane"}, ".status.phase"),
		update("pods", "web-1", kubelet, ".status.conditions[0].status", ".metadata.generation"),
	})
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprintf("%d of %d %s by %s: %s", c.Times, c.Objects,
			strings.Join(c.Names, ","), c.User, c.Says))
	}
	want := []string{
		`3 of 2 web-2,web-1 by system:node:one: + .status.phase: "x"`,
		`1 of 1 web-1 by jane: + .status.phase: "x"`,
		"1 of 1 web-1 by system:node:one: ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
}
