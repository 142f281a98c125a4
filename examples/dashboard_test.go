package examples_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

var update = flag.Bool("update", false, "take the pictures in docs/images")

// TestDashboard uses one browser, and one control plane with a cluster that lives.
func TestDashboard(t *testing.T) {
	t.Parallel()
	findBrowser(t) // before anything is started
	s := servertest.Run(t, servertest.Workloads, func(o *server.Options) {
		o.SimulatedMetrics = true
	})
	k := kubectl.New(t, s)
	k.Run("apply", "-f", "crontab/manifests/definition.yaml")
	k.WaitEstablished("crontabs.simple.extension.io")
	k.Run("apply", "-f", "crontab/manifests/crontab.yaml")
	k.Run("create", "deployment", "web", "--image=nginx", "--replicas=3")
	k.Run("create", "deployment", "api", "--image=api", "--replicas=2")
	k.Run("rollout", "status", "deployment/web", "--timeout=60s")
	k.Run("rollout", "status", "deployment/api", "--timeout=60s")
	k.Run("run", "huge", "--image=huge",
		`--overrides={"spec":{"containers":[{"name":"huge","image":"huge",`+
			`"resources":{"requests":{"cpu":"1000"}}}]}}`)
	b := openBrowser(t, serveDashboard(t, s, "--dashboard-writes"))

	t.Run("home", func(t *testing.T) { testHome(t, b, k) })
	t.Run("live", func(t *testing.T) { testLive(t, b, s, k) })
	t.Run("request", func(t *testing.T) { testRequest(t, b, k) })
	t.Run("inventory", func(t *testing.T) { testInventory(t, b) })
	t.Run("calm", func(t *testing.T) { testCalm(t, b, s) })
	t.Run("addresses", func(t *testing.T) { testOldAddresses(t, b) })
	t.Run("objects", func(t *testing.T) { testObjects(t, b, k) })
	t.Run("events", func(t *testing.T) { testEvents(t, b, k) })
	t.Run("history", func(t *testing.T) { testHistory(t, b, k) })
	t.Run("moments", func(t *testing.T) { testMoments(t, b, k) })
	t.Run("logs", func(t *testing.T) { testLogs(t, b, k) })
	t.Run("commands", func(t *testing.T) { testCommands(t, b, k) })
	t.Run("columns", func(t *testing.T) { testColumns(t, b, k) })
	t.Run("change", func(t *testing.T) { testChange(t, b, k) })
	t.Run("search", func(t *testing.T) { testSearch(t, b) })
	t.Run("try", func(t *testing.T) { testTry(t, b) })
	t.Run("walk", func(t *testing.T) { testWalk(t, b, k) })
	t.Run("keyboard", func(t *testing.T) { testKeyboard(t, b) })
	t.Run("widths", func(t *testing.T) { testWidths(t, b, s) })
	t.Run("many", func(t *testing.T) { testMany(t, b, s) })
	t.Run("load", func(t *testing.T) { testLoad(t, b, s) })
}

// TestDashboardReadOnly opens the page of a dashboard that may not change anything. It is not
// parallel, because the metrics of the control loops are those of the process, and TestDashboard
// takes pictures of them.
func TestDashboardReadOnly(t *testing.T) {
	findBrowser(t)
	b := openBrowser(t, serveDashboard(t, servertest.Run(t)))
	p := b.open(t, "try", 1280, 800, false)
	p.set(`#attempt [name="method"]`, "DELETE")
	p.run(chromedp.Click(`#attempt button`, chromedp.ByQuery))
	p.until(`document.querySelector("#try-failed").innerText.includes("--dashboard-writes")`)
	p.ignoreRefusals()
	walk := b.open(t, "chain?tab=walk", 1280, 800, false)
	walk.run(chromedp.Click("#walk-start", chromedp.ByQuery))
	walk.until(`document.querySelector("#walk-at").innerText.startsWith("step 1 of")`)
}

// ignoreRefusals removes the refusals of the dashboard from what was wrong, which the browser
// reports as errors.
func (p *tab) ignoreRefusals() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = withoutRefusals(p.problems)
}

func testHome(t *testing.T, b *browser, k *kubectl.Kubectl) {
	k.Run("create", "deployment", "broken", "--image=web:404", "--replicas=7")
	defer k.Run("delete", "deployment", "broken", "--cascade=foreground")
	p := b.open(t, "home", 1280, 800, false)
	p.until(`document.querySelector("#wrong").innerText.includes("Insufficient cpu")`)
	p.until(`document.querySelector("#wrong li.pending .sign.pending")`)
	p.until(`document.querySelector("#warnings").innerText.includes("FailedScheduling")`)
	p.until(`document.querySelector("#healthy").innerText.includes("Deployment")`)
	// One card for the deployment with its pods, before what is not ready yet.
	p.until(`document.querySelector("#wrong li").innerText.includes(
		"7 pods: image web:404 cannot be pulled")`)
	p.until(`document.querySelector("#wrong li .root").innerText.replace(/\s+/g, " ") ===
		"! failing Deployment default/broken 0/7 ready"`)
	p.until(`document.querySelectorAll("#wrong li .whose a[href*='resource=pods']").length === 5 &&
		document.querySelector("#wrong li .whose").innerText.includes("2 more")`)
	p.until(`document.querySelectorAll("#wrong li").length === 2`)
	k.Run("scale", "deployment", "api", "--replicas=1")
	k.Run("scale", "deployment", "api", "--replicas=2")
	p.until(`[...document.querySelectorAll("#changed li")].some(li =>
		li.innerText.includes("default/api") && li.innerText.includes("by deployment-controller"))`)
	if noise := eval[string](p, `document.querySelector("#changed").innerText.match(
		/containerID|leases|\.status\.used/)?.[0] ?? ""`); noise != "" {
		t.Errorf("the changes show %s", noise)
	}
	p.tiles()
	p.picture("dashboard-home")
	p.click("#wrong .whose a:last-child")
	p.until(`document.querySelectorAll("#object .tree li").length === 9`)
	p.run(chromedp.NavigateBack())
	p.click(`#wrong a[href*="name=huge"]`)
	p.until(`document.querySelector("#object").innerText.includes("kind: Pod")`)
	for _, width := range []int64{390, 1920} {
		wide := b.open(t, "home", width, 844, width == 1920)
		wide.until(`document.querySelector("#wrong li .whose")`)
		wide.tiles()
		wide.fits()
		wide.whole()
	}
}

// tiles fails the test unless the tiles of Home have one width, and fill the rows.
func (p *tab) tiles() {
	p.t.Helper()
	p.until(`document.querySelectorAll("#healthy .tile").length > 4`)
	widths := eval[[]int](p, `[...document.querySelectorAll("#healthy .tile")].map(e =>
		Math.round(e.getBoundingClientRect().width))`)
	right := eval[float64](p, `Math.max(...[...document.querySelectorAll("#healthy .tile")].map(e =>
		e.getBoundingClientRect().right)) - document.querySelector("#healthy").getBoundingClientRect().right`)
	if slices.Max(widths)-slices.Min(widths) > 1 || right < -1 {
		p.t.Errorf("the tiles are %d pixels wide, and the last one ends %.0f pixels before the row",
			widths, -right)
	}
}

func testLive(t *testing.T, b *browser, s *server.Server, k *kubectl.Kubectl) {
	p := b.open(t, "chain", 1280, 800, false)
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { send(ctx, s, 40) })
	defer sending.Wait()
	defer cancel()
	p.until(rows("#requests", "/deployments"))
	p.until(rows("#groups", "crontabs.simple.extension.io"))
	p.until(`document.querySelectorAll(".dot").length > 3`)
	p.until(`parseInt(document.querySelector("#pace").innerText) > 5`)
	p.until(`/p50 .* p95 .* p99 /.test(document.querySelector("#latency").innerText)`)
	k.Run("scale", "deployment", "web", "--replicas=4")
	p.until(`/requests? of control loops hidden/.test(document.querySelector("#hidden").innerText)`)
	if eval[bool](p, rows("#requests", "deployment-controller")+" > 0") {
		t.Error("the requests of a control loop are shown")
	}
	// The lines branch, and carry what passes.
	p.until(`/^All requests/.test(document.querySelector("#window").innerText)`)
	p.until(`document.querySelectorAll("#graph g.flows").length > 5`)
	for _, box := range []string{"clients", "authentication", "core", "extensions", "not found", "etcd"} {
		p.until(fmt.Sprintf(`/\/s/.test(document.querySelector('#graph [data-box="%[1]s"] .rate').innerText) &&
			/p95/.test(document.querySelector('#graph [data-box="%[1]s"] .late').innerText)`, box))
	}
	widths := eval[[]float64](p, `["clients → filters", "extensions → not found"].map(title =>
		parseFloat([...document.querySelectorAll("#graph g")].find(g => g.textContent.startsWith(title))
			.querySelector("path").style.strokeWidth))`)
	if widths[0] <= widths[1] || widths[1] <= 1.5 {
		t.Errorf("the line of all requests is %.1f wide, that of some %.1f", widths[0], widths[1])
	}
	p.picture("dashboard-chain")

	// A box of the chain filters, and the browser's button leads back.
	p.click(`#graph [data-box="not found"]`)
	p.until(`location.hash === "#chain?at=not+found"`)
	p.until(`document.querySelectorAll("#requests tbody tr").length > 3`)
	if others := eval[int](p, `[...document.querySelectorAll("#requests tbody tr")]
		.filter(r => !r.innerText.includes("404")).length`); others > 0 {
		t.Errorf("%d requests have not ended at 404", others)
	}
	p.run(chromedp.NavigateBack())
	p.until(`location.hash === "#chain" && ` + rows("#requests", "200"))

	// With the loops, each has its name.
	p.click(`#filter [name="loops"]`)
	// The list is empty until requests of the new selection arrive. Those from before are missed.
	p.until(`location.hash.includes("loops=1") && ` + rows("#requests", "200"))
	k.Run("scale", "deployment", "web", "--replicas=3")
	p.until(rows("#requests", "deployment-controller"))

	// A path is cut in its middle, its name never.
	if cut := eval[[]string](p, `[...document.querySelectorAll("#requests .path .name")]
		.filter(n => n.scrollWidth > n.clientWidth + 1).map(n => n.innerText)`); len(cut) > 0 {
		t.Errorf("the names %q are cut", cut)
	}
	p.set(`#filter [name="code"]`, "9")
	p.until(`document.querySelector("#live-failed").innerText.includes("not a status code")`)
	p.set(`#filter [name="code"]`, "4xx")
	p.until(`location.hash.includes("code=4xx") && ` + rows("#requests", "404"))
	p.click("#filter-clear")
	p.until(`location.hash === "#chain" && document.querySelector('#filter [name="code"]').value === ""`)

	// Paused, nothing appears.
	p.click("#pause")
	p.until(`document.querySelector("#pace").innerText === "paused"`)
}

func testRequest(t *testing.T, b *browser, k *kubectl.Kubectl) {
	p := b.open(t, "chain?loops=1&agent=replicaset-controller&method=POST&path=default/pods", 1280, 980,
		false)
	for replicas := 4; replicas < 100; replicas++ {
		k.Run("scale", "deployment", "api", fmt.Sprint("--replicas=", 2+2*(replicas%2)))
		if eval[bool](p, `document.querySelectorAll("#requests tbody tr").length > 1`) {
			break
		}
	}
	p.click("#requests tbody tr a")
	p.until(`document.querySelector("#request .steps")?.innerText.includes("ServiceAccount")`)
	p.until(`document.querySelectorAll("#request .steps .filled").length > 8`)
	p.until(`document.querySelector("#request .axis .marks").children.length === 5`)
	p.until(`document.querySelector("#request .related").innerText.includes("of replicaset-controller")`)
	p.until(`document.querySelectorAll("#request .related tbody tr").length > 1`)
	// All of the burst are on one axis of time, and what no step accounts for is drawn where it was.
	p.until(`[...document.querySelectorAll("#request .related tbody tr")].every(row =>
		parseFloat(row.querySelector(".filled").style.width) > 0)`)
	if lefts := eval[[]float64](p, `[...document.querySelectorAll("#request .related .filled")]
		.map(bar => parseFloat(bar.style.left))`); !slices.IsSorted(lefts) || lefts[0] != 0 {
		t.Errorf("the requests begin at %v", lefts)
	}
	p.until(`document.querySelectorAll("#request .unnamed .filled").length > 1`)

	// The steps are nested, and add up to the whole.
	if levels := eval[int](p, `new Set([...document.querySelectorAll("#request .steps li[data-at]")]
		.map(li => li.style.getPropertyValue("--level"))).size`); levels < 3 {
		t.Errorf("the steps have %d levels", levels)
	}
	if off := eval[float64](p, `(async () => {
		const id = new URLSearchParams(location.hash.split("?")[1]).get("request");
		const a = await (await fetch("/live/" + id)).json();
		return Math.abs(a.took - document.querySelector("#request [data-sum]").dataset.sum) / a.took;
	})()`, awaitPromise); off > .001 {
		t.Errorf("the sum is off by %.1f %%", 100*off)
	}
	p.until(`document.querySelector("#request .unnamed:nth-last-child(2)").innerText.includes("filters")`)
	p.picture("dashboard-request")
	p.click("#request details summary")
	p.until(`document.querySelector("#request details[open] pre")?.innerText.length > 10`)

	// Two requests, and back with the browser's button.
	p.click(`#request .related tbody a[href*="with="]`)
	p.until(`document.querySelector("#request-title").innerText === "Two requests"`)
	p.until(`document.querySelector("#request .two").innerText.includes("B − A")`)
	p.run(chromedp.NavigateBack())
	p.until(`document.querySelector("#request .steps")`)
	// Its way along the chain.
	p.click(`#request a[href*="tab=walk"]`)
	p.until(`!document.querySelector("#request").open &&
		document.querySelector("#walk-steps").innerText.includes("POST")`)
	p.click("#walk-next")
	p.until(`document.querySelector("#walk-at").innerText.startsWith("step 2 of")`)
	p.until(`document.querySelectorAll("#graph .walked").length > 0`)
}

// requested is a condition for until: there are requests in the list.
const requested = `document.querySelector("#requests tbody a")`

func testInventory(t *testing.T, b *browser) {
	p := b.open(t, "chain?tab=inventory", 1280, 900, true)
	p.until(`document.querySelector("#inventory-state").innerText.startsWith("as of")`)
	for _, row := range [][2]string{
		{"#counts", "Deployment"}, {"#loops", "deployment-controller"}, {"#nodes", "simulated-0"},
		{"#crds", "Established True"}, {"#apiservices", "Available True"},
	} {
		p.until(rows(row[0], row[1]))
	}
	p.until(`document.querySelector("#versions").innerText.includes("simple.extension.io/v1")`)
	for _, sign := range []string{
		"#nodes .sign.ready", "#counts .sign.pending", "#loops .sign.ready", "#loops .sign.done",
		"#versions .sign.ready", "#apiservices .sign.ready",
	} {
		if !eval[bool](p, fmt.Sprintf("Boolean(document.querySelector(%q))", sign)) {
			t.Errorf("there is no %s", sign)
		}
	}
	p.picture("dashboard-inventory-dark")

	// A box has a part of it.
	p.click(`#graph [data-box="extensions"]`)
	p.until(`location.hash === "#chain?at=extensions" && document.querySelector("#box").innerText
		.includes("chain/extensions/extensions.go")`)
	p.until(rows("#crds", "Established True"))
	p.until(`document.querySelector("#counts").innerText.includes("CronTab") &&
		!document.querySelector("#counts").innerText.includes("Deployment")`)
	if eval[bool](p, `document.querySelector("#nodes").checkVisibility()`) {
		t.Error("nodes hang on the link of custom resources")
	}
	p.until(requested + ` && document.querySelectorAll("#graph g.flows").length > 2`)
	p.picture("dashboard-box")
	p.click("#box-close")
	p.until(`location.hash === "#chain" && document.querySelector("#box").hidden`)
}

// testCalm shows the picture to somebody who wants no motion, and when nothing passes.
func testCalm(t *testing.T, b *browser, s *server.Server) {
	p := b.open(t, "home", 1280, 800, false)
	p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-reduced-motion", Value: "reduce"},
	}), chromedp.Evaluate(`location.hash = "chain"`, nil))
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { send(ctx, s, 20) })
	defer sending.Wait()
	defer cancel()
	p.until(`document.querySelectorAll("#graph g.flows").length > 4`)
	p.until(`document.querySelectorAll("#requests tbody tr").length > 20`)
	if dots := eval[int](p, `document.querySelectorAll(".dot").length`); dots > 0 {
		t.Errorf("%d dots move", dots)
	}
	p.click("#pause")
	said := eval[[]string](p, `import("/assets/picture.js").then(({showFlow}) => [60, 0].map(n => {
		showFlow({seconds: 60, boxes: n ? [{to: "core", perSecond: .01, p95: 2e8}] : []});
		return document.querySelector("#window").innerText + " " +
			document.querySelector('#graph [data-box="core"]').innerText;
	}))`, awaitPromise)
	for i, want := range []string{"last minute", "No request"} {
		if !strings.Contains(said[i], want) || (i == 0) != strings.Contains(said[i], "p95 200.0 ms") {
			t.Errorf("when idle, the picture says %q, want %q", said[i], want)
		}
	}
}

// testOldAddresses opens bookmarks of views that are parts of the chain now.
func testOldAddresses(t *testing.T, b *browser) {
	p := b.open(t, "home", 1280, 800, false)
	for _, c := range [][3]string{
		{"#inventory", "#chain?tab=inventory", "#crds"}, {"#walk?step=2", "#chain?step=2&tab=walk", "#walk-start"},
		{"#chain?end=core", "#chain?at=core", "#box"},
	} {
		p.run(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", c[0]), nil))
		p.until(fmt.Sprintf(`location.hash === %q && document.querySelector(%q).checkVisibility()`,
			c[1], c[2]))
	}
}

func testTry(t *testing.T, b *browser) {
	p := b.open(t, "try", 1280, 800, false)
	p.set(`#attempt [name="path"]`, "/api/v1/namespaces/default/secrets")
	p.run(chromedp.SendKeys(`#attempt [name="as"]`, "jane", chromedp.ByQuery),
		chromedp.Click("#attempt button", chromedp.ByQuery))
	p.until(`document.querySelector("#answer").innerText.includes("403")`)
	p.until(`document.querySelector("#answer .steps").innerText.includes("refused")`)
	p.picture("dashboard-try")

	// Examples, and the paths of all kinds.
	p.until(`[...document.querySelectorAll("#paths option")].some(o =>
		o.value === "/apis/apps/v1/namespaces/default/deployments")`)
	examples := eval[[]string](p, `[...document.querySelector('[name="example"]')].slice(1)
		.map(o => o.value)`)
	if len(examples) < 8 {
		t.Errorf("there are %d examples", len(examples))
	}
	for _, example := range examples {
		p.set(`#attempt [name="example"]`, example)
		p.run(chromedp.Evaluate(`document.querySelector("#answer").replaceChildren()`, nil),
			chromedp.Click("#attempt button", chromedp.ByQuery))
		p.until(`document.querySelector("#answer .outcome")`)
		title := eval[string](p, `document.querySelector('[name="example"]').selectedOptions[0].text`)
		if got := eval[string](p, `document.querySelector("#answer .signed").innerText`); strings.Contains(
			got, "40") != (strings.Contains(title, "may not") || strings.Contains(title, "nobody")) {
			t.Errorf("the example %q got %s", title, got)
		}
	}
	p.set(`#attempt [name="as"]`, "")
	// Bytes that cannot be seen are written out.
	if got := eval[string](p, `import("/assets/request.js").then(({said}) =>
		said({decision: "get", reason: "/registry/pods/a\0: 1 key"}))`, awaitPromise); got !=
		`get (/registry/pods/a\0: 1 key)` {
		t.Errorf("a key with NUL is shown as %q", got)
	}
	p.set(`#attempt [name="path"]`, "api")
	p.run(chromedp.Click("#attempt button", chromedp.ByQuery))
	p.until(`document.querySelector("#try-failed").innerText.includes("begin with one slash")`)
	p.set(`#attempt [name="path"]`, "/api/v1/namespaces")
	p.set(`#attempt [name="method"]`, "POST")
	p.set(`#attempt [name="as"]`, "")
	p.set(`#attempt [name="body"]`, "kind: [")
	p.run(chromedp.Click("#attempt button", chromedp.ByQuery))
	p.until(`document.querySelector("#try-failed").innerText.includes("neither YAML nor JSON")`)
	p.set(`#attempt [name="body"]`, "apiVersion: v1\nkind: Namespace\nmetadata: {name: tried}\n")
	p.run(chromedp.Click("#attempt button", chromedp.ByQuery))
	p.until(`document.querySelector("#answer").innerText.includes("201")`)
	p.ignoreRefusals()
}

func testWalk(t *testing.T, b *browser, k *kubectl.Kubectl) {
	p := b.open(t, "chain?tab=walk", 1280, 900, false)
	p.run(chromedp.Click("#walk-start", chromedp.ByQuery))
	p.until(`document.querySelector("#walk-at").innerText.startsWith("step 1 of")`)
	seen := map[string]bool{}
	for !eval[bool](p, `document.querySelector("#walk-next").disabled`) {
		title := eval[string](p, `document.querySelector(".stop h3").innerText`)
		if !eval[bool](p, `document.querySelector(".stop p").innerText.length > 20`) {
			t.Errorf("the step %q is not explained", title)
		}
		if title == "mutating admission" && !seen[title] {
			p.until(`document.querySelector(".stop pre .add")`)
			// The chain beside the step, the file of the code, and the tour.
			p.until(`document.querySelector("#walk-chain [aria-current]").innerText ===
				"mutating admission"`)
			p.until(`document.querySelector("#graph [aria-current]").dataset.box === "core"`)
			p.until(`document.querySelectorAll("#graph .walked").length >= 3 &&
				document.querySelector('#graph [data-box="extensions"].unreached')`)
			p.until(`document.querySelector(".where").innerText.includes("chain/admission.go") &&
				document.querySelector(".where").innerText.includes("docs/tour/5-write.md")`)
			p.picture("dashboard-walk")
		}
		seen[title] = true
		at := eval[string](p, `document.querySelector("#walk-at").innerText`)
		p.run(chromedp.Click("#walk-next", chromedp.ByQuery))
		p.until(fmt.Sprintf(`document.querySelector("#walk-at").innerText !== %q`, at))
	}
	for _, place := range []string{
		"authentication", "core", "decoding", "mutating admission", "etcd",
	} {
		if !seen[place] {
			t.Errorf("the walk does not pass %s, only %v", place, seen)
		}
	}
	p.run(chromedp.Click("#walk-back", chromedp.ByQuery))
	p.until(`!document.querySelector("#walk-next").disabled`)
	p.run(chromedp.NavigateBack()) // which is the step after
	p.until(`document.querySelector("#walk-next").disabled`)

	// A box leads to its step.
	p.click(`#graph [data-box="authorization"]`)
	p.until(`document.querySelector(".stop h3").innerText === "authorization"`)

	// Nothing is left but the history.
	if left := k.Run("get", "pods", "-o=name"); strings.Contains(left, "walk-") {
		t.Errorf("the walk has left %s", left)
	}
	p.click(`#walk-steps a[href*="tab=history"]`)
	p.until(`document.querySelector(".versions")?.innerText.includes("deleted")`)
}

// pace is how many requests a second testLoad sends.
const pace = 1000

func testLoad(t *testing.T, b *browser, s *server.Server) {
	p := b.open(t, "chain", 1280, 800, false)
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	var sent int64
	began := time.Now()
	sending.Go(func() { sent = send(ctx, s, pace) })
	p.until(`parseInt(document.querySelector("#pace").innerText) > 20`)
	// How late the page is, while ten seconds' worth of events arrive.
	var late, worst float64
	for time.Since(began) < 8*time.Second {
		p.run(chromedp.Evaluate(`(async () => {
			const began = performance.now();
			await new Promise(done => setTimeout(done, 50));
			return performance.now() - began - 50;
		})()`, &late, chromedp.EvalAsValue, awaitPromise))
		worst = max(worst, late)
	}
	clicked := time.Now()
	p.until(clicking("#requests tbody a", `document.querySelector("#request .outcome")`))
	opened := time.Since(clicked)
	shown := eval[string](p, `document.querySelector("#pace").innerText`)
	rows := eval[int](p, `document.querySelector("#requests tbody").rows.length`)
	cancel()
	sending.Wait()
	rate := float64(sent) / time.Since(began).Seconds()
	t.Logf("%.0f requests a second were sent; the page showed %s and %d rows, was %.0f ms late at most, "+
		"and opened a request in %s", rate, shown, rows, worst, opened)
	if rows > 100 {
		t.Errorf("the page has %d rows", rows)
	}
	p.ignoreRefusals() // of a request that is not kept any more, if the page is late
}

// send sends requests at a pace until ctx ends, and returns how many.
func send(ctx context.Context, s *server.Server, perSecond int) int64 {
	clients := make([]rest.Interface, 3)
	for i, user := range []string{"kubernetes-admin", "controller", "jane"} {
		groups := []string{"system:masters"}
		if user == "jane" {
			groups = nil
		}
		config, err := s.InProcessConfig(user, groups...)
		if err != nil {
			return 0
		}
		clients[i] = kubernetes.NewForConfigOrDie(config).Discovery().RESTClient()
	}
	paths := []string{
		"/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/deployments",
		"/apis/simple.extension.io/v1/namespaces/default/crontabs", "/api/v1/nodes",
		"/apis/nobody.example.com/v1/things", "/api/v1/namespaces/kube-system/configmaps",
		"/apis/discovery.k8s.io/v1/endpointslices",
	}
	const beat = 20 * time.Millisecond
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var sent atomic.Int64
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, 64)
	due := 0.0
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return sent.Load()
		case <-tick.C:
		}
		for due += float64(perSecond) * beat.Seconds(); due >= 1; due-- {
			n++
			slots <- struct{}{}
			client, path := clients[n%len(clients)], paths[n%len(paths)]
			running.Go(func() {
				defer func() { <-slots }()
				client.Get().AbsPath(path).Do(ctx)
				sent.Add(1)
			})
		}
	}
}
