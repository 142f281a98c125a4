package apitest

import "testing"

func TestAdmissionAlways(t *testing.T) {
	t.Parallel()
	checkRefused(t, "AlwaysAdmit",
		ask(t, newPlugin(t, "AlwaysAdmit", nil), "pods", newPod(), nil), false)
	checkRefused(t, "AlwaysDeny", ask(t, newPlugin(t, "AlwaysDeny", nil), "pods", newPod(), nil), true)
}
