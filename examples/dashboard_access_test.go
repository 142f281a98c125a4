package examples_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kinproc/kinproc/server"
)

// axeVersion is the version of axe-core, which finds what keeps people from using a page.
const axeVersion = "4.11.0"

// findAxe returns the script of axe-core, which npm gets. Without npm, the script is empty, but not
// in CI.
func findAxe(t *testing.T) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no npm; on Debian: apt-get install -y --no-install-recommends npm")
		}
		t.Log("there is no npm, so axe-core does not look at the page")
		return ""
	}
	dir := t.TempDir()
	install := exec.Command(npm, "install", "--prefix", dir, "--cache", filepath.Join(dir, "cache"),
		"--ignore-scripts", "--no-audit", "--no-fund", "axe-core@"+axeVersion)
	if out, err := install.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("npm install: %v\n%s", err, out)
		}
		t.Logf("npm cannot get axe-core, which does not look at the page: %v\n%s", err, out)
		return ""
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// accessible fails the test if axe-core finds something on the page.
func (p *tab) accessible(axe string) {
	p.t.Helper()
	if axe == "" {
		return
	}
	p.run(chromedp.Evaluate(axe, nil))
	found := eval[[]string](p, `axe.run().then(r => r.violations.map(v =>
		v.id + ": " + v.nodes[0].html + " " + v.nodes[0].failureSummary))`, awaitPromise)
	for _, finding := range found {
		p.t.Errorf("%s: axe-core finds %s", eval[string](p, "location.hash"), finding)
	}
}

// testWidths opens each screen in each width, light and dark.
func testWidths(t *testing.T, b *browser, s *server.Server) {
	axe := findAxe(t)
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { send(ctx, s, 20) })
	defer sending.Wait()
	defer cancel()
	const web = "objects?group=apps&resource=deployments&inside=default&name=web"
	screens := []struct{ view, do, until string }{
		{"home", "", `document.querySelector("#changed li")`},
		{"chain", "", `parseInt(document.querySelector("#pace").innerText) > 5 &&
			document.querySelector("#requests tbody a")`},
		{"chain?loops=1", "",
			clicking("#requests tbody a", `document.querySelector("#request .related tr")`)},
		{"chain?at=core", "", `document.querySelector("#counts tbody a") && ` + requested},
		{"chain?tab=inventory", "", `document.querySelector("#inventory-state").innerText.startsWith("as of")`},
		{"objects", "", `document.querySelector("#list .row")`},
		{"objects?resource=events", "", `document.querySelector("#list .row")`},
		{"objects?resource=clusterroles&group=rbac.authorization.k8s.io", "",
			`document.querySelector("#list .row")`},
		{web, "", `document.querySelector(".yaml .line")`},
		{web + "&tab=events", "", `document.querySelector(".events li")`},
		{web + "&tab=history", "", `document.querySelector(".versions li")`},
		{web + "&tab=history&versions=all", "", `document.querySelectorAll(".marks i").length > 3`},
		{"objects?inside=default&name=huge&tab=logs", "", `document.querySelector(".logbox output")`},
		{web + "&tab=tree", "", `document.querySelectorAll(".tree li").length > 3`},
		{web, "", clicking(`[data-key="edit"]`, `document.querySelector("#change").open`)},
		{"search?text=web", "", `document.querySelector("#found li")`},
		{"try", `document.querySelector("#attempt button").click()`,
			`document.querySelector("#answer .yaml")`},
		{"chain?tab=walk", `document.querySelector("#walk-start").click()`, `document.querySelector(".steps")`},
	}
	for _, width := range []int64{390, 1280, 1920} {
		for _, dark := range []bool{false, true} {
			for _, screen := range screens {
				p := b.open(t, screen.view, width, 844, dark)
				if screen.do != "" {
					p.run(chromedp.Evaluate(screen.do, nil))
				}
				p.until(screen.until)
				p.fits()
				p.whole()
				if screen.view == "chain?loops=1" && width == 390 {
					p.titles()
				}
				p.accessible(axe)
				background := eval[string](p, "getComputedStyle(document.body).backgroundColor")
				if dark != (background == "rgb(20, 24, 30)") {
					t.Errorf("dark is %t, but the background is %s", dark, background)
				}
				if strings.HasPrefix(screen.view, "chain") {
					p.branches(width < 1100)
				}
				switch {
				case screen.view == "chain" && width == 390 && dark:
					p.picture("dashboard-narrow")
				case screen.view == "chain" && width == 1920:
					// The list of requests uses the room.
					if part := eval[float64](p, `document.querySelector("#view-chain .columns").clientWidth /
						innerWidth`); part < .9 {
						t.Errorf("the chain uses %.0f %% of 1920 pixels", 100*part)
					}
				}
				p.close()
			}
		}
	}
}

// branches fails the test if the boxes of the chain do not follow one another, or if a line leaves
// the picture.
func (p *tab) branches(narrow bool) {
	p.t.Helper()
	side := "left"
	if narrow {
		side = "top"
	}
	if ordered := eval[bool](p, fmt.Sprintf(`["clients", "filters", "aggregator", "core", "etcd"]
		.map(name => document.querySelector('#graph [data-box="' + name + '"]').getBoundingClientRect())
		.every((box, i, all) => !i || box.%[1]s > all[i - 1].%[1]s)`, side)); !ordered {
		p.t.Errorf("%s: the boxes do not follow one another", eval[string](p, "location.hash"))
	}
	if off := eval[[]string](p, `(frame => [...document.querySelectorAll("#graph g")].filter(g => {
			const line = g.getBoundingClientRect();
			return line.width + line.height < 8 || line.left < frame.left - 8 || line.right > frame.right + 8 ||
				line.top < frame.top - 8 || line.bottom > frame.bottom + 8;
		}).map(g => g.textContent))(document.querySelector("#graph").getBoundingClientRect())`); len(off) > 0 {
		p.t.Errorf("%s: the lines %q leave the picture", eval[string](p, "location.hash"), off)
	}
}

// clicking returns a condition for until that clicks an element, and again after five seconds: what
// was clicked may be gone, or the page may not have been listening yet.
func clicking(selector, condition string) string {
	return fmt.Sprintf(`%s || ((window.clickAgain ?? 0) < performance.now() && (e => {
			e.click();
			window.clickAgain = performance.now() + 5000;
		})(document.querySelector(%q)), false)`, condition, selector)
}

// titles gives a request paths of many lengths, of which each breaks at another place.
func (p *tab) titles() {
	p.t.Helper()
	eval[bool](p, `import("/assets/format.js").then(({path}) => {
		window.retitle = n => document.querySelector("#request h2").replaceChildren(
			path("/api/v1/namespaces/" + "n".repeat(n) + "-default/pods/web"));
		return true;
	})`, awaitPromise)
	for n := range 24 { // longer words have no room in a line
		p.run(chromedp.Evaluate(fmt.Sprintf("retitle(%d)", n), nil))
		p.whole()
	}
}

// testKeyboard uses the page without a pointer.
func testKeyboard(t *testing.T, b *browser) {
	p := b.open(t, "home", 1280, 800, false)
	focus := func() string {
		return eval[string](p, `document.activeElement.dataset.key || document.activeElement.hash ||
			document.activeElement.id || document.activeElement.innerText || document.activeElement.tagName`)
	}
	press := func(want string) {
		t.Helper()
		for pressed := 0; !strings.HasPrefix(focus(), want); pressed++ {
			if pressed == 200 {
				t.Fatalf("the tab key never reaches %s", want)
			}
			p.run(chromedp.KeyEvent(kb.Tab))
		}
	}
	press("#objects")
	p.keys("Enter")
	p.until(listed("web-"))
	// One press of the tab key leads into the list, and the arrows through it.
	first := eval[string](p, `document.querySelector("#list .row a").dataset.key`)
	press(first)
	p.keys("ArrowDown", "ArrowDown", "ArrowUp")
	second := eval[string](p, `document.querySelectorAll("#list .row a")[1].dataset.key`)
	if got := focus(); got != second {
		t.Errorf("the focus is on %s, want %s", got, second)
	}
	p.keys("End")
	p.until(`document.activeElement.dataset.key ===
		[...document.querySelectorAll("#list .row a")].at(-1).dataset.key`)
	p.keys("Enter")
	p.until(`document.querySelector("#object").innerText.includes("kind: Pod")`)
	press("edit")
	p.keys("Enter")
	p.until(`document.activeElement.tagName === "TEXTAREA"`)
	// What is behind the dialog cannot be reached, so it has no link that skips it.
	if eval[bool](p, `document.querySelector("#skip").checkVisibility()`) {
		t.Error("there is a link to the content behind the dialog")
	}
	p.keys("Escape")
	p.until(`document.activeElement.dataset.key === "edit"`)
	press("#objects?inside=default&name=")
	for !eval[bool](p, `document.activeElement.innerText === "History"`) {
		p.run(chromedp.KeyEvent(kb.Tab))
	}
	p.keys("Enter")
	p.until(`document.querySelector("#slider")`)
	press("slider")
	p.keys("ArrowLeft")
	p.until(`!/^(\d+) of \1:/.test(document.querySelector(".version").innerText)`)

	// The keys of k9s: down and up, YAML, logs, history, filter, close.
	p.run(chromedp.Evaluate(`location.hash = "objects?namespace=default"`, nil))
	p.until(listed("web-") + ` && !document.querySelector("#list [data-chosen]")`)
	p.run(chromedp.Evaluate("document.activeElement.blur()", nil))
	p.keys("k")
	p.until(`document.activeElement.closest("#list .row")`) // the last one, as above
	at := focus()
	p.keys("k")
	if focus() == at {
		t.Error("the key k does not lead up")
	}
	p.keys("j")
	if got := focus(); got != at {
		t.Errorf("the key j leads to %s, want %s", got, at)
	}
	for n := 0; !strings.HasSuffix(focus(), "/huge"); n++ {
		if n == 50 {
			t.Fatal("the key k never leads to the pod huge")
		}
		p.keys("k")
	}
	for _, opened := range []struct{ key, tab string }{
		{"y", "YAML"}, {"h", "History"}, {"l", "Logs"},
	} {
		p.keys(opened.key)
		p.until(fmt.Sprintf(`document.querySelector("#object-tabs [aria-current]").innerText === %q &&
			document.querySelector("#object-title").innerText === "huge"`, opened.tab))
		// The open row is marked.
		p.until(`(r => r.querySelector("a").textContent === "huge" &&
			getComputedStyle(r).boxShadow !== "none")(document.querySelector("#list [data-chosen]"))`)
	}
	p.keys("Escape")
	p.until(`document.querySelector("#object").hidden && document.activeElement.textContent === "huge"`)
	p.run(chromedp.Evaluate(`document.activeElement.dispatchEvent(
		new KeyboardEvent("keydown", {key: "/", bubbles: true, cancelable: true}))`, nil))
	p.until(`document.activeElement.name === "text"`)
	p.keys("h", "j") // which are letters in a field
	p.until(`document.activeElement.value === "hj" && location.hash.includes("text=hj")`)

	// A box of the chain opens with Enter. A request opens with Enter and closes with Escape, and
	// the focus is where it was.
	p.run(chromedp.Evaluate(`location.hash = "chain"`, nil))
	p.until(`!document.querySelector("#view-chain").hidden`)
	press("core")
	p.keys("Enter")
	p.until(`location.hash === "#chain?at=core" && document.activeElement.dataset.box === "core"`)
	p.until(`document.querySelector("#box").innerText.includes("chain/core/groups.go")`)
	p.until(`document.querySelector("#requests tbody a") || (fetch("/namespaces"), false)`)
	p.run(chromedp.Focus("#requests tbody a", chromedp.ByQuery))
	p.keys("Enter")
	p.until(`document.querySelector("#request .outcome")`)
	p.keys("Escape")
	p.until(`!document.querySelector("#request").open && document.activeElement.closest("#requests")`)
	if unnamed := eval[int](p, `[...document.querySelectorAll("button, input, select, textarea, a")]
		.filter(e => !e.innerText?.trim() && !e.labels?.length && !e.ariaLabel)
		.filter(e => !e.closest("[hidden]") && e.checkVisibility()).length`); unnamed > 0 {
		t.Errorf("%d controls have no name", unnamed)
	}
}

// keys presses keys, by their names.
func (p *tab) keys(names ...string) {
	p.t.Helper()
	codes := map[string]string{
		"Enter": kb.Enter, "Escape": kb.Escape, "ArrowDown": kb.ArrowDown, "ArrowUp": kb.ArrowUp,
		"ArrowLeft": kb.ArrowLeft, "End": kb.End,
	}
	for _, name := range names {
		code := codes[name]
		if code == "" {
			code = name
		}
		p.run(chromedp.KeyEvent(code))
	}
}

// click clicks on the first element of a selector, in the moment in which there is one.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`(e => e?.checkVisibility() && (e.click(), true))(document.querySelector(%q))`,
		selector))
}
