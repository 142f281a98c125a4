package examples_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

// browsers are the names of the program of the browser.
var browsers = []string{"chromium", "chromium-browser", "google-chrome"}

// findBrowser returns the path of the browser. Without one, it skips the test, but not in CI.
func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "there is no chromium; " +
		"on Debian: apt-get install -y --no-install-recommends chromium"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// serveDashboard runs kinproc dashboard for a control plane until the test ends. It returns the
// link.
func serveDashboard(t *testing.T, s *server.Server, args ...string) string {
	t.Helper()
	args = append([]string{"dashboard", "--kubeconfig", servertest.Kubeconfig(t,
		s.RESTConfig())}, args...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), kinprocVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("kinproc dashboard: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, query, ok := strings.Cut(lines.Text(), "http://"); ok {
			return "http://" + query
		}
	}
	t.Fatalf("kinproc dashboard printed no link: %v", lines.Err())
	return ""
}

// browser is a browser with a session.
type browser struct {
	t    *testing.T
	ctx  context.Context
	link string
}

// openBrowser starts a browser and opens a link.
func openBrowser(t *testing.T, link string) *browser {
	t.Helper()
	dir := t.TempDir()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(findBrowser(t)),
		chromedp.NoSandbox, // tests may run as root
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.UserDataDir(dir),
		chromedp.WSURLReadTimeout(timeout),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		defer stop()
		closing, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := chromedp.Cancel(closing); err != nil {
			t.Errorf("close the browser: %v", err)
		}
		// The browser's other processes write for a moment more.
		if err := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, timeout, true,
			func(context.Context) (bool, error) { return os.RemoveAll(dir) == nil, nil }); err != nil {
			t.Errorf("remove the browser's folder: %v", err)
		}
	})
	if err := chromedp.Run(ctx, chromedp.Navigate(link)); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return &browser{t, ctx, link}
}

// tab is a page of the browser.
type tab struct {
	t     *testing.T
	ctx   context.Context
	close func()

	mu       sync.Mutex
	problems []string
}

// open opens a view in a new tab. At the end, nothing may have been wrong on the page: no
// exception, no error on the console, and nothing that violates the content security policy.
func (b *browser) open(t *testing.T, view string, width, height int64, dark bool) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx, close: cancel}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.note(e.ExceptionDetails.Error())
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError {
				p.note(e.Entry.Text + " " + e.Entry.URL)
			}
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				p.note("console.error")
			}
		}
	})
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Errorf("on the page: %s", problem)
		}
	})
	// The tab lasts as long as the context of the first call.
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	address, _, _ := strings.Cut(b.link, "?")
	section, _, _ := strings.Cut(view, "?")
	p.run(page.BringToFront(), // a hidden page gets no events
		chromedp.EmulateViewport(width, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
		}),
		chromedp.Navigate(address+"#"+view),
		chromedp.WaitVisible("#view-"+section, chromedp.ByQuery))
	return p
}

func (p *tab) note(problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, problem)
}

// run runs actions on the page.
func (p *tab) run(actions ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns the value of an expression on the page.
func eval[T any](p *tab, expression string, options ...chromedp.EvaluateOption) T {
	p.t.Helper()
	var value T
	p.run(chromedp.Evaluate(expression, &value, options...))
	return value
}

// until waits until an expression is true. While an element is missing, it is not.
func (p *tab) until(expression string) {
	p.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for !eval[bool](p, "(() => { try { return Boolean("+expression+") } catch { return false } })()") {
		select {
		case <-tick.C:
		case <-deadline.C:
			p.t.Fatalf("gave up waiting for %s; at %s, the page says %s", expression,
				eval[string](p, "location.hash"),
				eval[string](p, "document.querySelector('#main').innerText"))
		}
	}
}

// fits fails the test if the page has to be scrolled sideways.
func (p *tab) fits() {
	p.t.Helper()
	widths := eval[[]int](p, "[document.documentElement.scrollWidth, innerWidth]")
	if widths[0] > widths[1] {
		p.t.Errorf("%s is %d pixels wide in a window of %d", eval[string](p, "location.hash"),
			widths[0], widths[1])
	}
}

// broken is an expression for the words that are broken inside: those whose letters are in more
// than one line. Code may be broken.
const broken = `(() => {
	const found = [];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const text = texts.currentNode, inside = text.parentElement;
		if (!inside.checkVisibility() || inside.closest("pre, .code, .unseen, textarea")) continue;
		for (const word of text.data.matchAll(/[A-Za-z]+/g)) {
			const range = document.createRange();
			range.setStart(text, word.index);
			range.setEnd(text, word.index + word[0].length);
			const lines = new Set([...range.getClientRects()].map(r => Math.round(r.top)));
			if (lines.size > 1) found.push(word[0] + " in " + text.data.slice(0, 60));
		}
	}
	return found;
})()`

// whole fails the test if a word is broken inside.
func (p *tab) whole() {
	p.t.Helper()
	if words := eval[[]string](p, broken); len(words) > 0 {
		p.t.Errorf("%s breaks words: %q", eval[string](p, "location.hash"), words)
	}
}

// maxPicture is the size of a picture in the documentation.
const maxPicture = 150_000

// picture takes a picture of the window for the documentation, with -update.
func (p *tab) picture(name string) {
	p.t.Helper()
	if !*update {
		return
	}
	var shot []byte
	p.run(chromedp.CaptureScreenshot(&shot))
	picture, err := fewerColors(shot)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(picture) > maxPicture {
		p.t.Errorf("the picture %s has %d bytes, more than %d", name, len(picture), maxPicture)
	}
	images := filepath.Join("..", "docs", "images")
	err = errors.Join(os.MkdirAll(images, 0o755),
		os.WriteFile(filepath.Join(images, name+".png"), picture, 0o644))
	if err != nil {
		p.t.Fatal(err)
	}
}

// fewerColors returns a picture with at most 256 colors, which makes it smaller. Of the colors that
// look alike, it takes the one that the picture has most of.
func fewerColors(shot []byte) ([]byte, error) {
	decoded, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	type alike struct{ r, g, b uint32 }
	count, all := map[color.Color]int{}, map[alike]int{}
	best := map[alike]color.Color{}
	bounds := decoded.Bounds()
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			c := decoded.At(x, y)
			r, g, b, _ := c.RGBA()
			a := alike{r >> 11, g >> 11, b >> 11}
			count[c]++
			all[a]++
			if best[a] == nil || count[c] > count[best[a]] {
				best[a] = c
			}
		}
	}
	alikes := slices.SortedFunc(maps.Keys(all), func(a, b alike) int {
		return cmp.Compare(all[b], all[a])
	})
	var colors color.Palette
	for _, a := range alikes[:min(len(alikes), 256)] {
		colors = append(colors, best[a])
	}
	picture := image.NewPaletted(bounds, colors)
	draw.Draw(picture, bounds, decoded, image.Point{}, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, picture)
	return out.Bytes(), err
}

// set sets the value of a field, as typing it does.
func (p *tab) set(field, value string) {
	p.t.Helper()
	p.run(chromedp.Evaluate(fmt.Sprintf(`(field => {
		field.value = %q;
		field.dispatchEvent(new Event("input", {bubbles: true}));
		field.dispatchEvent(new Event("change", {bubbles: true}));
	})(document.querySelector(%q))`, value, field), nil))
}

// rows returns an expression for the number of rows of a table that contain a text.
func rows(table, text string) string {
	return fmt.Sprintf(
		"[...document.querySelectorAll('%s tbody tr')].filter(r => r.innerText.includes(%q)).length",
		table, text)
}

// awaitPromise makes Evaluate wait for the value of a promise.
func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams {
	return p.WithAwaitPromise(true)
}

// withoutRefusals returns the problems that are not refusals of the dashboard.
func withoutRefusals(problems []string) []string {
	var others []string
	for _, problem := range problems {
		if !strings.Contains(problem, "the server responded with a status of 40") {
			others = append(others, problem)
		}
	}
	return others
}
