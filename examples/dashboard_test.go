package examples_test

import (
	"context"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
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
	s := servertest.Run(t, servertest.Workloads)
	k := kubectl.New(t, s)
	k.Run("apply", "-f", "crontab/manifests/definition.yaml")
	k.WaitEstablished("crontabs.simple.extension.io")
	k.Run("apply", "-f", "crontab/manifests/crontab.yaml")
	k.Run("create", "deployment", "web", "--image=nginx", "--replicas=3")
	k.Run("create", "deployment", "api", "--image=api", "--replicas=2")
	k.Run("rollout", "status", "deployment/web", "--timeout=60s")
	k.Run("rollout", "status", "deployment/api", "--timeout=60s")
	b := openBrowser(t, serveDashboard(t, s, "--dashboard-writes"))

	t.Run("live", func(t *testing.T) { testLive(t, b, s, k) })
	t.Run("inventory", func(t *testing.T) { testInventory(t, b) })
	t.Run("objects", func(t *testing.T) { testObjects(t, b, k) })
	t.Run("try", func(t *testing.T) { testTry(t, b) })
	t.Run("walk", func(t *testing.T) { testWalk(t, b) })
	t.Run("keyboard", func(t *testing.T) { testKeyboard(t, b) })
	t.Run("widths", func(t *testing.T) { testWidths(t, b, s) })
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
	walk := b.open(t, "walk", 1280, 800, false)
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

func testLive(t *testing.T, b *browser, s *server.Server, k *kubectl.Kubectl) {
	p := b.open(t, "chain", 1280, 800, false)
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { send(ctx, s, 40) })
	defer sending.Wait()
	defer cancel()
	p.until(rows("#requests", "/apis/apps/v1/namespaces/default/deployments"))
	p.until(rows("#groups", "crontabs.simple.extension.io"))
	p.until(rows("#groups", "404"))
	p.until(`document.querySelectorAll(".dot").length > 3`)
	p.until(`parseInt(document.querySelector("#pace").innerText) > 5`)
	p.picture("dashboard-chain")

	// One request, by a click.
	p.set(`#filter [name="method"]`, "POST")
	p.run(chromedp.SendKeys(`#filter [name="path"]`, "default/pods?field", chromedp.ByQuery))
	p.until(`document.querySelector("#requests tbody").rows.length === 0`)
	for name := range 100 {
		k.Run("run", "once-"+string(rune('a'+name%26))+string(rune('a'+name/26)), "--image=nginx")
		if eval[bool](p, rows("#requests", "/pods")+" > 0") {
			break
		}
	}
	p.until(rows("#requests", "/api/v1/namespaces/default/pods"))
	p.run(chromedp.Click("#requests tbody tr", chromedp.ByQuery),
		chromedp.WaitVisible("#request .steps", chromedp.ByQuery))
	p.until(`document.querySelector("#request .steps").innerText.includes("ServiceAccount")`)
	p.until(`document.querySelectorAll("#request .steps .filled").length > 8`)
	p.run(chromedp.Click("#request details:nth-of-type(1) summary", chromedp.ByQuery))
	p.until(`document.querySelector("#request details[open] pre")?.innerText.length > 10`)
	p.picture("dashboard-request")
	p.run(chromedp.Click("#close", chromedp.ByQuery),
		chromedp.WaitNotVisible("#request", chromedp.ByQuery))

	// Paused, nothing appears.
	p.run(chromedp.Click("#pause", chromedp.ByQuery))
	p.until(`document.querySelector("#pace").innerText === "paused"`)
}

func testInventory(t *testing.T, b *browser) {
	p := b.open(t, "inventory", 1280, 800, true)
	p.until(`document.querySelector("#inventory-state").innerText.startsWith("as of")`)
	for _, row := range [][2]string{
		{"#counts", "Deployment"}, {"#loops", "deployment-controller"}, {"#nodes", "simulated-0"},
		{"#crds", "crontabs.simple.extension.io"}, {"#apiservices", "v1.apps"},
	} {
		p.until(rows(row[0], row[1]))
	}
	p.until(`document.querySelector("#versions").innerText.includes("simple.extension.io/v1")`)
	p.picture("dashboard-inventory-dark")
}

func testObjects(t *testing.T, b *browser, k *kubectl.Kubectl) {
	p := b.open(t, "objects", 1280, 800, false)
	p.until(rows("#list", "web-"))
	k.Run("run", "fresh", "--image=nginx")
	p.until(rows("#list", "fresh")) // without a reload
	p.run(chromedp.Click(`#list button[data-key="default/fresh"]`, chromedp.ByQuery))
	p.until(`document.querySelector("#object").innerText.includes("kind: Pod")`)
	p.until(`document.querySelector("#object").innerText.includes("phase: Running")`)
	p.picture("dashboard-objects")
	k.Run("delete", "pod", "fresh", "--wait=false")
	p.until(rows("#list", "fresh") + " === 0")

	k.Run("create", "secret", "generic", "hush", "--from-literal=password=Correct-Horse")
	p.run(chromedp.Evaluate(
		`location.hash = "objects?resource=secrets&inside=default&name=hush"`, nil))
	p.until(`document.querySelector("#object").innerText.includes("bytes, not shown")`)
	if eval[bool](p, `document.documentElement.outerHTML.includes("Correct-Horse")`) {
		t.Error("the page has the data of a Secret")
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

func testWalk(t *testing.T, b *browser) {
	p := b.open(t, "walk", 1280, 800, false)
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
			p.picture("dashboard-walk")
		}
		seen[title] = true
		p.run(chromedp.Click("#walk-next", chromedp.ByQuery))
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
}

func testKeyboard(t *testing.T, b *browser) {
	p := b.open(t, "inventory", 1280, 800, false)
	focus := func() string {
		return eval[string](p, `document.activeElement.hash || document.activeElement.dataset.key ||
			document.activeElement.id || document.activeElement.tagName`)
	}
	press := func(key, want string) {
		t.Helper()
		for range 200 {
			if focus() == want {
				return
			}
			p.run(chromedp.KeyEvent(key))
		}
		t.Fatalf("the key never reaches %s", want)
	}
	p.until(`document.querySelector("#inventory-state").innerText.startsWith("as of")`)
	press(kb.Tab, "#objects")
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#list tbody button")`)
	first := eval[string](p, `document.querySelector("#list tbody button").dataset.key`)
	press(kb.Tab, first)
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#object").innerText.includes("kind: Pod")`)

	// A request opens with Enter and closes with Escape, and the focus is where it was.
	p.run(chromedp.Evaluate(`location.hash = "chain"`, nil))
	p.run(chromedp.Evaluate(`fetch("/inventory").then(r => r.json()).then(() => true)`, nil))
	p.until(`document.querySelector("#requests tbody button") || (fetch("/kinds"), false)`)
	p.run(chromedp.Focus("#requests tbody button", chromedp.ByQuery), chromedp.KeyEvent(kb.Enter),
		chromedp.WaitVisible("#request .outcome", chromedp.ByQuery))
	p.run(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible("#request", chromedp.ByQuery))
	p.until(`document.activeElement.closest("#requests")`)
	if unnamed := eval[int](p, `[...document.querySelectorAll("button, input, select, textarea, a")]
		.filter(e => !e.innerText?.trim() && !e.labels?.length && !e.ariaLabel)
		.filter(e => !e.closest("[hidden]")).length`); unnamed > 0 {
		t.Errorf("%d controls have no name", unnamed)
	}
}

func testWidths(t *testing.T, b *browser, s *server.Server) {
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { send(ctx, s, 20) })
	defer sending.Wait()
	defer cancel()
	for _, width := range []int64{390, 1280} {
		for _, dark := range []bool{false, true} {
			for _, view := range []string{
				"chain", "inventory", "objects", "try", "walk",
				"objects?resource=clusterroles&group=rbac.authorization.k8s.io",
			} {
				p := b.open(t, view, width, 844, dark)
				switch view {
				case "chain":
					p.until(`document.querySelector("#requests tbody button")`)
					p.until(`parseInt(document.querySelector("#pace").innerText) > 5`)
				case "inventory":
					p.until(`document.querySelector("#inventory-state").innerText.startsWith("as of")`)
				case "try":
					p.run(chromedp.Click("#attempt button", chromedp.ByQuery))
					p.until(`document.querySelector("#answer pre")`)
				case "walk":
					p.run(chromedp.Click("#walk-start", chromedp.ByQuery))
					p.until(`document.querySelector(".steps")`)
				default:
					p.until(`document.querySelector("#list tbody button")`)
				}
				p.fits()
				background := eval[string](p, "getComputedStyle(document.body).backgroundColor")
				if dark != (background == "rgb(20, 24, 30)") {
					t.Errorf("dark is %t, but the background is %s", dark, background)
				}
				if view == "chain" && width == 390 && dark {
					p.picture("dashboard-narrow")
				}
			}
		}
	}
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
	p.run(chromedp.Evaluate(`document.querySelector("#requests tbody tr").click()`, nil),
		chromedp.WaitVisible("#request .outcome", chromedp.ByQuery))
	opened := time.Since(clicked)
	shown := eval[string](p, `document.querySelector("#pace").innerText`)
	rows := eval[int](p, `document.querySelector("#requests tbody").rows.length`)
	cancel()
	sending.Wait()
	rate := float64(sent) / time.Since(began).Seconds()
	t.Logf("%.0f requests a second were sent; the page showed %s and %d rows, was %.0f ms late at most, "+
		"and opened a request in %s", rate, shown, rows, worst, opened)
	if rows > 60 {
		t.Errorf("the page has %d rows", rows)
	}
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
