package examples_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server"
)

// listed is an expression for the number of rows of the list of objects that contain a text.
func listed(text string) string {
	return fmt.Sprintf(
		"[...document.querySelectorAll('#list .row')].filter(r => r.innerText.includes(%q)).length", text)
}

// names is an expression for the names in the list of objects that are on the screen.
const names = `[...document.querySelectorAll("#list .row a")].map(a => a.textContent)`

func testObjects(t *testing.T, b *browser, k *kubectl.Kubectl) {
	p := b.open(t, "objects", 1280, 800, false)
	p.until(listed("web-"))
	k.Run("run", "fresh", "--image=nginx", "--labels=team=one")
	p.until(listed("fresh")) // without a reload
	p.until(`document.querySelector("#list .row.pending .sign.pending")`)
	p.until(`document.querySelector("#objects-state a").innerText === "1 not ready"`)

	// Sorted by a column, in both directions.
	p.click(`#list .sort[title="sort by Name"]`)
	p.until(names + `[0].startsWith("api-")`)
	p.click(`#list .sort[title="sort by Name"]`)
	p.until(names + `[0].startsWith("web-") && location.hash.includes("down=1")`)

	// Filtered by label, by field, by namespace, and by state.
	p.set(`#selection [name="labels"]`, "team=one")
	p.until(names + `.join() === "fresh"`)
	p.set(`#selection [name="labels"]`, "team in (")
	p.until(`document.querySelector("#objects-failed").innerText.includes("cannot be listed")`)
	p.set(`#selection [name="labels"]`, "")
	p.set(`#selection [name="fields"]`, "status.phase=Pending")
	p.until(names + `.join() === "huge"`)
	p.set(`#selection [name="fields"]`, "")
	p.until(listed("web-"))
	p.click("#objects-state a")
	p.until(names + `.join() === "huge"`)
	p.run(chromedp.NavigateBack())
	p.until(listed("web-"))
	p.set(`#selection [name="namespace"]`, "kube-system")
	p.until(`document.querySelector("#objects-empty").checkVisibility()`)
	p.set(`#selection [name="namespace"]`, "default")
	p.until(listed("web-"))

	// One object: it folds, keeps what is folded while it changes, and copies.
	p.click(`#list a[data-key="default/fresh"]`)
	p.until(`document.querySelector("#object").innerText.includes("phase: Running")`)
	p.click(`.yaml [data-path="spec"]`)
	p.until(`!document.querySelector(".yaml").innerText.includes("containers:")`)
	// The lines of the latest change are marked, so none may follow that of the label.
	k.Run("wait", "--for=condition=Ready", "pod/fresh", "--timeout=60s")
	k.Run("label", "pod", "fresh", "color=green")
	p.until(`document.querySelector(".yaml .fresh")?.innerText.includes("color: green")`)
	if eval[bool](p, `document.querySelector(".yaml").innerText.includes("containers:")`) {
		t.Error("the object unfolds when it changes")
	}
	p.click(".tools button")
	p.until(`/copied|selected/.test(document.querySelector(".tools output").innerText)`)
	p.click(`.yaml [data-path="spec"]`)
	p.picture("dashboard-objects")

	// Its owners, which are links, and the way back.
	p.run(chromedp.Evaluate(`location.hash =
		"objects?group=apps&resource=deployments&inside=default&name=web&tab=tree"`, nil))
	p.until(`document.querySelectorAll("#object .tree li").length === 5`)
	p.click(`#object .tree a[href*="resource=pods"]`)
	p.until(`document.querySelector("#object-kind").innerText === "Pod in default"`)
	p.until(`document.querySelector("#object .tree [aria-current]").innerText.startsWith("web-")`)
	p.run(chromedp.NavigateBack())
	p.until(`document.querySelector("#object-kind").innerText === "Deployment in default"`)

	// The menu of kinds, by group, with a search box.
	p.set("#kind-search", "cron")
	p.until(`[...document.querySelectorAll("#kinds a")].filter(a => a.checkVisibility())
		.map(a => a.innerText.split("\n")[0]).join() === "CronJob,CronTab"`)
	p.click(`#kinds a[data-kind="crontabs.simple.extension.io"]`)
	p.until(listed("my-crontab"))

	k.Run("delete", "pod", "fresh", "--wait=false")
	p.run(chromedp.Evaluate(`location.hash = "objects"`, nil))
	p.until(listed("web-") + " && !" + listed("fresh"))
	k.Run("create", "secret", "generic", "hush", "--from-literal=password=Correct-Horse")
	p.run(chromedp.Evaluate(
		`location.hash = "objects?resource=secrets&inside=default&name=hush"`, nil))
	p.until(`document.querySelector("#object").innerText.includes("bytes, not shown")`)
	p.run(chromedp.Evaluate(
		`location.hash = "objects?resource=secrets&inside=default&name=hush&tab=history"`, nil))
	p.until(`document.querySelector("#object .versions").innerText.includes("created")`)
	if eval[bool](p, `document.documentElement.outerHTML.includes("Correct-Horse")`) {
		t.Error("the page has the data of a Secret")
	}
}

func testEvents(t *testing.T, b *browser, k *kubectl.Kubectl) {
	for _, width := range []int64{390, 1280} {
		p := b.open(t, "objects?resource=events", width, 800, false)
		p.until(listed("Scheduled"))
		k.Run("scale", "deployment", "api", "--replicas=1")
		k.Run("scale", "deployment", "api", "--replicas=2")
		p.until(`document.querySelector("#list .row").innerText.includes("api")`)
		p.click("#objects-state a") // the warnings only
		p.until(`document.querySelector("#list .row.failing .sign.failing") &&
			!document.querySelector("#list .row:not(.failing)")`)
		p.run(chromedp.NavigateBack())
		p.until(`document.querySelector("#list .row:not(.failing)")`)
		p.whole()
		p.fits()
		seconds := eval[[]float64](p, `(async () => {
			const {rows} = await new Promise(done => {
				const source = new EventSource("/objects?version=v1&resource=events");
				source.addEventListener("list", e => { source.close(); done(JSON.parse(e.data)); });
			});
			return rows.map(r => Date.parse(r.at) / 1000);
		})()`, awaitPromise)
		for i := range seconds {
			if i > 0 && seconds[i] > seconds[i-1] {
				t.Errorf("the event %d is newer than the one before", i)
			}
		}
		if width == 390 {
			p.until(`document.querySelector("#list .row .second").innerText.length > 10`)
		}
	}
}

func testHistory(t *testing.T, b *browser, k *kubectl.Kubectl) {
	k.Run("create", "configmap", "limits", "--from-literal=size=1")
	k.Run("patch", "configmap", "limits", "--type=merge", `-p={"data":{"size":"2"}}`)
	k.Run("label", "configmap", "limits", "app=web", "--as=jane", "--as-group=system:masters")
	p := b.open(t, "objects?resource=configmaps&inside=default&name=limits&tab=history", 1280, 800,
		false)
	p.until(`document.querySelector(".version")?.innerText.startsWith("3 of 3")`)
	p.until(`document.querySelector(".version").innerText.includes("as jane (impersonated by")`)
	p.until(`document.querySelector(".version pre .add").innerText.includes("labels:")`)
	k.Run("patch", "configmap", "limits", "--type=merge", `-p={"data":{"size":"3"}}`)
	p.until(`document.querySelector(".version").innerText.startsWith("4 of 4")`) // without a reload
	p.run(chromedp.Focus("#slider", chromedp.ByQuery))
	p.keys("ArrowLeft", "ArrowLeft")
	p.until(`document.querySelector(".version").innerText.startsWith("2 of 4")`)
	p.until(`document.querySelector(".changes").innerText === '~ .data.size: "1" → "2"'`)
	p.until(`document.querySelector("#slider").getAttribute("aria-valuetext").includes("kubectl-patch")`)
	// The address has the version.
	p.run(chromedp.Reload())
	p.until(`document.querySelector(".version")?.innerText.startsWith("2 of 4")`)
	p.click(".versions li:last-child a") // the oldest one
	p.until(`document.querySelector(".version").innerText.startsWith("1 of 4")`)
	k.Run("delete", "configmap", "limits")
	p.until(`document.querySelector("#object-failed").innerText.startsWith("It is gone")`)
	p.until(`document.querySelector(".versions .deleted")`)
	testChangesFit(t, b, k)
	testVersions(t, b, k)
}

// testVersions opens the history of a Deployment, of which most versions are of its status.
func testVersions(t *testing.T, b *browser, k *kubectl.Kubectl) {
	for _, replicas := range []string{"6", "2"} {
		k.Run("scale", "deployment", "api", "--replicas="+replicas)
		k.Run("rollout", "status", "deployment/api", "--timeout=60s")
	}
	const api = "objects?group=apps&resource=deployments&inside=default&name=api&tab=history"
	for _, screen := range []struct {
		width int64
		dark  bool
	}{{390, true}, {1280, false}, {1920, true}} {
		p := b.open(t, api, screen.width, 844, screen.dark)
		p.until(`document.querySelector(".pick [aria-current]")?.innerText.startsWith("Spec")`)
		counts := eval[[]int](p, `[...document.querySelectorAll(".pick a")].map(a =>
			Number(a.innerText.split(" ")[1]))`)
		if len(counts) != 3 || counts[0] < 3 || counts[2] < 2*counts[0] {
			t.Fatalf("of the specification, of people and of all are %d versions", counts)
		}
		marked := `document.querySelectorAll(".marks i").length === %d &&
			document.querySelectorAll(".versions li").length === %d`
		p.until(fmt.Sprintf(marked, counts[0], counts[0]))
		// The newest one is the first, and chosen.
		p.until(`document.querySelector(".versions li:first-child [aria-current]") &&
			document.querySelector(".marks .now:last-child")`)
		p.until(`document.querySelector(".changes").innerText.includes("~ .spec.replicas: 6 → 2")`)
		p.fits()
		p.whole()
		p.click(`.pick [data-key="versions all"]`)
		p.until(fmt.Sprintf(marked, counts[2], counts[2]))
		if screen.width == 1280 {
			p.picture("dashboard-history")
		}
		if colors := eval[int](p, `new Set([...document.querySelectorAll(".marks i")].map(i =>
			getComputedStyle(i).backgroundColor)).size`); colors < 2 {
			t.Errorf("the marks have %d colors", colors)
		}
		p.until(`document.querySelector(".writers").textContent.includes("deployment-controller")`)
		p.click(`.pick [data-key="versions people"]`)
		p.until(fmt.Sprintf(marked, counts[1], counts[1]))
		p.until(`!document.querySelector(".versions").textContent.includes("deployment-controller")`)
		// The address of a version that the filter hides shows it.
		p.run(chromedp.NavigateBack())
		p.until(`document.querySelector(".pick [aria-current]").innerText.startsWith("All")`)
		status := eval[string](p, `[...document.querySelectorAll(".versions a")].find(a =>
			a.hash.includes("rev=") && a.textContent.includes("deployment-controller"))
			.hash.match(/rev=(\d+)/)[1]`)
		p.run(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", api+"&rev="+status), nil))
		p.until(fmt.Sprintf(`document.querySelector(".version").innerText.includes("revision %s,")`, status))
		p.close()
	}
}

// windows are the widths of the window, each in another color scheme.
var windows = []struct {
	width int64
	dark  bool
}{{390, false}, {1280, true}, {1920, false}}

func testLogs(t *testing.T, b *browser, k *kubectl.Kubectl) {
	k.Apply(`
apiVersion: v1
kind: Pod
metadata:
  name: talks
  annotations:
    kinproc.dev/log.main: "\e[32mGET\e[0m /orders 200 number {n}"
    kinproc.dev/log-rate.main: "20"
    kinproc.dev/log.side: "<b>beside</b>"
    kinproc.dev/cpu: 100m..900m every 10s
    kinproc.dev/memory: 64Mi
spec:
  containers: [{name: main, image: web}, {name: side, image: web}]
---
apiVersion: v1
kind: Pod
metadata:
  name: crashes
  annotations:
    kinproc.dev/log: last words
    kinproc.dev/crash-loop: "true"
    kinproc.dev/back-off: 10ms
spec:
  containers: [{name: main, image: web}]
`)
	k.Run("wait", "--for=condition=Ready", "pod/talks", "--timeout=60s")
	for _, screen := range windows {
		p := b.open(t, "objects?inside=default&name=talks&tab=logs", screen.width, 844, screen.dark)
		p.until(`document.querySelectorAll(".log .line").length > 20`)
		lines := eval[int](p, `document.querySelectorAll(".log .line").length`)
		p.until(fmt.Sprintf(`document.querySelectorAll(".log .line").length > %d`, lines))
		p.until(`/^GET \/orders 200 number \d+$/.test(document.querySelector(".log .line").innerText)`)
		p.until(`(e => e.scrollTop + e.clientHeight > e.scrollHeight - 30)(document.querySelector(".log"))`)
		p.until(`document.querySelector("#object-usage polyline") &&
			/CPU \d+m/.test(document.querySelector("#object-usage").textContent)`)
		p.until(`document.querySelector("#object-command code").innerText ===
			"kubectl logs talks -n default -f"`)
		p.fits()
		p.whole()
		if screen.width == 1280 {
			p.picture("dashboard-logs")
		}
		// Not followed, nothing is added.
		p.click(`.logbox [data-key="follow"]`)
		p.until(`/^\d+ lines, the end$/.test(document.querySelector(".logbox output").innerText)`)
		p.set(`.logbox [data-key="container"]`, "side")
		p.until(`document.querySelector(".log").innerText === "<b>beside</b>"`)
		p.run(chromedp.Evaluate(`location.hash = "objects?inside=default&name=crashes&tab=logs"`, nil))
		p.click(`.logbox [data-key="previous"]`)
		p.until(`location.hash.includes("previous=1") &&
			document.querySelector(".log").innerText === "last words"`)
		p.close()
	}
	testUsage(t, b)
	k.Run("delete", "pod", "talks", "crashes", "--now")
}

// testUsage looks for what pods and nodes use.
func testUsage(t *testing.T, b *browser) {
	p := b.open(t, "objects?namespace=default&sort=CPU&down=1", 1920, 844, true)
	p.until(`[...document.querySelectorAll("#list [role=columnheader]")].map(c => c.textContent.trim())
		.join().includes("CPU ▾,Memory")`)
	p.until(names + `[0] === "talks"`) // which uses most
	p.until(`/\d+m\s+128Mi/.test(document.querySelector("#list .row").innerText)`)
	p.run(chromedp.Evaluate(`location.hash = "objects?resource=nodes"`, nil))
	p.until(`/\d+m\s+\d+Mi/.test(document.querySelector("#list .row").innerText)`)
	p.run(chromedp.Evaluate(`location.hash = "objects?resource=namespaces"`, nil))
	p.until(listed("kube-public") +
		` && !document.querySelector("#list [role=columnheader]:last-child").innerText.includes("Memory")`)
}

// testCommands compares what the page says is the command for it with what that prints.
func testCommands(t *testing.T, b *browser, k *kubectl.Kubectl) {
	p := b.open(t, "objects?namespace=default&labels=app%3Dweb", 1280, 800, false)
	p.until(listed("web-"))
	command := func(of string) []string {
		line := eval[string](p, fmt.Sprintf("document.querySelector('%s code').innerText", of))
		return strings.Fields(line)[1:]
	}
	shown := eval[int](p, names+".length")
	if printed := k.Run(command("#list-command")...); strings.Count(printed, "web-") != shown {
		t.Errorf("the command prints\n%s\nand the page shows %d pods", printed, shown)
	}
	p.run(chromedp.Evaluate(
		`location.hash = "objects?group=apps&resource=deployments&inside=default&name=web"`, nil))
	p.until(`document.querySelector("#object").innerText.includes("kind: Deployment")`)
	if printed := k.Run(command("#object-command")...); !strings.Contains(printed, "kind: Deployment") {
		t.Errorf("the command prints\n%s", printed)
	}
	p.run(chromedp.Evaluate(`location.hash = "objects?fields=" + encodeURIComponent("a='b c'")`, nil))
	p.until(`document.querySelector("#list-command code").innerText ===
		"kubectl get pods -A --field-selector 'a='\\''b c'\\'''"`)
	p.click("#list-command button")
	p.until(`/Copied|Selected/.test(document.querySelector("#list-command button").innerText)`)
	// A field whose name is one of a form's own properties would hide that from scripts.
	if hidden := eval[[]string](p, `[...document.querySelector("#selection").elements]
		.map(e => e.name).filter(name => name in HTMLFormElement.prototype)`); len(hidden) > 0 {
		t.Errorf("fields hide the properties %q of their form", hidden)
	}
}

// testColumns looks for the columns that are worth most, and for the ends of names.
func testColumns(t *testing.T, b *browser, k *kubectl.Kubectl) {
	const long = "a-name-that-is-much-longer-than-the-column-and-ends-in-x7k2p"
	k.Run("run", long, "--image=nginx")
	for _, screen := range windows {
		p := b.open(t, "objects", screen.width, 844, screen.dark)
		p.until(listed("web-"))
		p.until(fmt.Sprintf(`["Name", "Ready", "Status", ...%d > 390 ? ["Age"] : []].every(name =>
			[...document.querySelectorAll("#list .sort")].some(b => b.title === "sort by " + name))`,
			screen.width))
		// The name is cut in its middle, and its end is seen.
		p.until(fmt.Sprintf(`(e => {
			const [start, ending] = e.firstChild.children, cell = e.parentElement.getBoundingClientRect();
			return ending.innerText === "in-x7k2p" && start.scrollWidth > start.clientWidth &&
				ending.getBoundingClientRect().right <= cell.right + 1 || innerWidth > 1280;
		})(document.querySelector('#list a[data-key="default/%s"]'))`, long))
		p.fits()
		p.whole()
		p.close()
	}
	// The kinds in the menu are each in one line.
	p := b.open(t, "objects", 1280, 800, false)
	p.until(`document.querySelector('#kinds a[data-kind^="validatingadmissionpolicybindings"]')`)
	if tall := eval[[]string](p, `[...document.querySelectorAll("#kinds a")].filter(a =>
		a.checkVisibility() && a.offsetHeight > 32).map(a => a.innerText)`); len(tall) > 0 {
		t.Errorf("the kinds %q have several lines", tall)
	}
	k.Run("delete", "pod", long, "--now")
}

// testChangesFit opens the history of changes of many lengths, of which each breaks at another
// place.
func testChangesFit(t *testing.T, b *browser, k *kubectl.Kubectl) {
	create := []string{"create", "configmap", "lengths"}
	change := map[string]map[string]string{"data": {}}
	for n := range 24 { // longer words have no room in a line
		key := strings.Repeat("n", n) + ".lastTransitionTime"
		create = append(create, "--from-literal="+key+"=1")
		change["data"][key] = "2"
	}
	patch, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	k.Run(create...)
	k.Run("patch", "configmap", "lengths", "--type=merge", "--patch="+string(patch))
	p := b.open(t, "objects?resource=configmaps&inside=default&name=lengths&tab=history", 390, 844,
		false)
	p.until(`document.querySelectorAll(".changes li").length > 1`)
	p.whole()
	k.Run("delete", "configmap", "lengths")
}

func testChange(t *testing.T, b *browser, k *kubectl.Kubectl) {
	k.Run("create", "deployment", "changed", "--image=nginx", "--replicas=1")
	// An edit of an object that changes meanwhile is refused.
	k.Run("rollout", "status", "deployment/changed", "--timeout=60s")
	p := b.open(t, "objects?group=apps&resource=deployments&inside=default&name=changed", 1280, 800,
		false)
	p.until(`document.querySelector("#object").innerText.includes("kind: Deployment")`)
	replace := func(old, now string) {
		t.Helper()
		p.run(chromedp.Evaluate(fmt.Sprintf(`(text => {
			text.value = text.value.replace(%q, %q);
			text.dispatchEvent(new Event("input"));
		})(document.querySelector("#change textarea"))`, old, now), nil))
	}
	press := func(text string) {
		t.Helper()
		p.run(chromedp.Evaluate(fmt.Sprintf(`[...document.querySelectorAll("#change-body button")]
			.find(b => b.innerText === %q).click()`, text), nil))
	}
	closed := `!document.querySelector("#change").open`

	// Edit: the server validates, says what it would change, and saves.
	p.click(`[data-key="edit"]`)
	if eval[bool](p, `/^status:/m.test(document.querySelector("#change textarea").value)`) {
		t.Error("the status can be edited")
	}
	// Everything that is wrong is said at once, with its line, whose number stands beside it.
	replace("replicas: 1", "replicas: -1\n  replicaz: 2")
	press("Check")
	p.until(`document.querySelectorAll("#change .problems li").length === 2`)
	for _, want := range []string{"must be greater than or", `unknown field "spec.replicaz"`} {
		if !eval[bool](p, fmt.Sprintf(`document.querySelector("#change .problems").innerText.includes(%q)`,
			want)) {
			t.Errorf("there is no %q", want)
		}
	}
	if marked := eval[[]string](p, `[...document.querySelectorAll("#change .wrong")].map(n =>
		document.querySelector("#change textarea").value.split("\n")[n.innerText - 1])`); !slices.Equal(marked,
		[]string{"  replicas: -1", "  replicaz: 2"}) {
		t.Errorf("the marked lines are %q", marked)
	}
	press(eval[string](p, `document.querySelector("#change .problems button").innerText`))
	if got := eval[string](p, `(text => text.value.slice(text.selectionStart, text.selectionEnd))(
		document.activeElement)`); got != "  replicaz: 2" {
		t.Errorf("the button leads to %q", got)
	}
	replace("replicas: -1\n  replicaz: 2", "replicas: 1\n  template: [")
	press("Check")
	p.until(`document.querySelector("#change .wrong") && document.querySelector("#change .problem")
		.innerText.includes("neither YAML nor JSON")`)
	replace("\n  template: [", "")
	replace("replicas: 1", "replicas: -1")
	press("Check")
	p.until(`document.querySelector("#change .problem").innerText.includes("must be greater than or")`)
	replace("replicas: -1", "replicaz: 2")
	press("Check")
	p.until(`document.querySelector("#change .problem").innerText.includes("unknown field")`)
	replace("replicaz: 2", "replicas: 2")
	press("Check")
	p.until(`document.querySelector("#change .diff .add")?.innerText.includes("generation: 2") &&
		document.querySelector("#change .diff").innerText.includes("+   replicas: 2")`)
	if got := k.Run("get", "deployment", "changed", "-o=jsonpath={.spec.replicas}"); got != "1" {
		t.Errorf("the check has changed the replicas to %s", got)
	}
	p.picture("dashboard-edit")
	press("Save")
	p.until(closed)
	if got := k.Run("get", "deployment", "changed", "-o=jsonpath={.status.observedGeneration}"); got == "" {
		t.Error("the status is gone")
	}
	p.until(`document.querySelector(".yaml").innerText.includes("replicas: 2")`)

	p.click(`[data-key="scale"]`)
	p.set(`#change [name="replicas"]`, "3")
	press("Scale")
	p.until(closed)
	p.until(`document.querySelector(".yaml").innerText.includes("readyReplicas: 3")`)

	p.click(`[data-key="restart"]`)
	press("Restart")
	p.until(closed)
	p.until(`document.querySelector(".yaml").innerText.includes("kubectl.kubernetes.io/restartedAt")`)

	// Delete, and leave what it owns.
	p.click(`[data-key="delete"]`)
	p.until(`/It owns \d+ objects/.test(document.querySelector("#change-body").innerText)`)
	p.set(`#change [name="propagation"]`, "Orphan")
	press("Delete")
	p.until(closed)
	p.until(`document.querySelector("#object-failed").innerText.startsWith("It is gone")`)
	if k.Run("get", "replicasets", "-l=app=changed", "-o=name") == "" {
		t.Error("what it owned is gone too")
	}
	k.Run("delete", "replicasets", "-l=app=changed")
	p.ignoreRefusals()
}

func testSearch(t *testing.T, b *browser) {
	p := b.open(t, "home", 1280, 800, false)
	// The key itself would be typed too: the driver does not know that the page has used it.
	p.run(chromedp.Evaluate(`document.body.dispatchEvent(
		new KeyboardEvent("keydown", {key: "/", bubbles: true}))`, nil))
	p.until(`document.activeElement.id === "search-text"`)
	p.run(chromedp.SendKeys("#search-text", "my-cron", chromedp.ByQuery))
	p.until(`document.querySelector("#found a")?.innerText === "my-crontab"`)
	p.keys("Enter")
	p.until(`document.querySelector("#object")?.innerText.includes("kind: CronTab")`)
	p.run(chromedp.NavigateBack())
	p.until(`location.hash === "#search?text=my-cron" && document.querySelector("#found a")`)
}

// many is how many objects testMany lists. The dashboard lists up to 10,000, and a namespace has
// some of its own.
const many = 9_990

func testMany(t *testing.T, b *browser, s *server.Server) {
	config := rest.CopyConfig(s.RESTConfig())
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config).CoreV1()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
	if _, err := client.Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const workers = 16
	var creating sync.WaitGroup
	for worker := range workers {
		creating.Go(func() {
			for i := worker; i < many; i += workers {
				one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("one-%05d", i)}}
				if _, err := client.ConfigMaps("many").Create(t.Context(), one,
					metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	creating.Wait()
	if t.Failed() {
		return
	}
	p := b.open(t, "objects?resource=configmaps&namespace=many&text=one-", 1280, 800, false)
	p.until(fmt.Sprintf(
		`document.querySelector("#objects-state").innerText.startsWith("%d objects")`, many))
	// From the first row to the last one, only those on the screen are elements.
	var took, slowest float64
	most := 0
	began := time.Now()
	for step := range 50 {
		p.run(chromedp.Evaluate(fmt.Sprintf(`(async () => {
			const box = document.querySelector("#list"), began = performance.now();
			box.scrollTop = box.scrollHeight * %d / 49;
			await new Promise(requestAnimationFrame);
			await new Promise(requestAnimationFrame);
			return performance.now() - began;
		})()`, step), &took, awaitPromise))
		slowest = max(slowest, took)
		most = max(most, eval[int](p, `document.querySelectorAll("#list .row").length`))
	}
	p.until(listed(fmt.Sprintf("one-%05d", many-1)))
	t.Logf("50 leaps through %d objects took %s, the slowest %.0f ms until the next frame but one; "+
		"at most %d rows were elements", many, time.Since(began), slowest, most)
	if most > 100 {
		t.Errorf("the list has %d rows", most)
	}
	p.set(`#selection [name="text"]`, "one-00999")
	p.until(names + `.join() === "one-00999"`)
}

// testMoments goes back to what there was before a Deployment was deleted.
func testMoments(t *testing.T, b *browser, k *kubectl.Kubectl) {
	k.Run("create", "deployment", "past", "--image=past:1")
	k.Run("rollout", "status", "deployment/past", "--timeout=60s")
	uid := k.Run("get", "deployment", "past", "-o", "jsonpath={.metadata.uid}")
	revision := k.Run("get", "deployment", "past", "-o", "jsonpath={.metadata.resourceVersion}")
	k.Run("delete", "deployment", "past", "--cascade=foreground")
	const list = "objects?group=apps&resource=deployments&text=past"
	for _, screen := range []struct {
		width int64
		dark  bool
	}{{390, true}, {1280, false}, {1920, true}} {
		p := b.open(t, list, screen.width, 844, screen.dark)
		p.until(`!document.querySelector("#objects-empty").hidden`)
		p.until(`document.querySelector("#moment-at").innerText.startsWith("now; ")`)
		// The marks are those of people.
		p.until(`document.querySelector("#moment-marks .tall[title*=' as kubernetes-super-admin']")`)
		p.run(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", list+"&at="+revision), nil))
		p.until(`document.querySelector("#list .row a")?.textContent === "past"`)
		p.until(fmt.Sprintf(
			`document.querySelector("#moment-at").innerText.includes("revision %s, ")`, revision))
		p.until(`document.querySelector("#objects-state").innerText.includes("as they were")`)
		p.fits()
		p.whole()
		p.click("#list .row a")
		p.until(fmt.Sprintf(`document.querySelector("#object").innerText.includes(%q)`, uid))
		p.until(`!document.querySelector("#object-actions button")`)
		p.until(fmt.Sprintf(`document.querySelector("#object-command").innerText.startsWith(
			"kinproc at %s -- kubectl get")`, revision))
		p.click(`#object-tabs a[href*="tab=tree"]`)
		p.until(`document.querySelectorAll("#object .tree li").length === 3`)
		if screen.width == 1280 {
			p.picture("dashboard-moment")
		}
		p.fits()
		p.whole()
		// Its owners are of then too.
		p.click(`#object .tree a[href*="resource=pods"]`)
		p.until(`document.querySelector("#object-kind").innerText.startsWith("Pod ") &&
			document.querySelectorAll("#object .tree li").length === 3`)
		p.click(`#object-close`)
		// The arrow keys go from one moment to the next, and End to now.
		p.run(chromedp.Focus("#moment-slider", chromedp.ByQuery))
		p.keys("ArrowLeft")
		p.until(fmt.Sprintf(`Number(new URLSearchParams(location.hash.split("?")[1]).get("at")) < %s`,
			revision))
		p.keys("End")
		p.until(`!location.hash.includes("at=") &&
			document.querySelector("#objects-state").innerText.includes("live")`)
		p.run(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", list+"&at=99999999"), nil))
		p.until(`document.querySelector("#objects-failed").innerText.includes("cannot be listed")`)
		p.click("#moment-now")
		p.until(`!location.hash.includes("at=") && !document.querySelector("#objects-failed").innerText`)
		p.ignoreRefusals()
	}
}
