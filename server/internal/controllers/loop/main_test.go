package loop

import (
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain leaves out the handlers of errors. One of them sleeps by the clock of the last error,
// which was that of another test.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	m.Run()
}
