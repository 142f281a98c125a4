package examples_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/kinproc/kinproc/server/servertest"
)

// The page compares large objects without hanging, and small ones line by line.
func TestAttackComparisonOfLargeObjects(t *testing.T) {
	t.Parallel()
	findBrowser(t)
	p := openBrowser(t, serveDashboard(t, servertest.Run(t))).open(t, "try", 1280, 800, false)
	same := ""
	p.run(
		chromedp.Evaluate(`import("/assets/compare.js").then(({common}) => {
			const lines = mark => Array.from({length: 100000}, (_, i) => mark + i);
			common(lines("a"), lines("b"));
		})`, nil, awaitPromise),
		chromedp.Evaluate(`import("/assets/compare.js").then(({common}) =>
			[...common(["a", "b", "c", "d"], ["a", "x", "c", "y", "d"]).now].sort().join())`, &same, awaitPromise),
	)
	if same != "0,2,4" {
		t.Errorf("the lines %s are the same, want 0,2,4", same)
	}
}
