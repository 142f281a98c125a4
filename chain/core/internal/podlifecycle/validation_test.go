package podlifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func decode[T any](t *testing.T, document string) *T {
	t.Helper()
	obj := new(T)
	if err := json.Unmarshal([]byte(strings.ReplaceAll(document, "'", `"`)), obj); err != nil {
		t.Fatalf("decode %s: %v", document, err)
	}
	return obj
}

const uid = "7ab04d7a-3b1c-4a0c-8f4e-0c9a2b1d6e55"

func TestEvictionRequests(t *testing.T) {
	t.Parallel()
	k := EvictionRequests()
	spec := func(uid, requester, intent string) string {
		return `{'spec':{'target':{'pod':{'name':'p','uid':'` + uid + `'}},'requester':'` + requester +
			`','intent':'` + intent + `'}}`
	}
	valid := spec(uid, "example.com/a", "Eviction")
	for _, c := range []struct {
		name, document string
		old            string // empty to create
		want           []string
	}{
		{"valid", valid, "", nil},
		{"empty", `{}`, "", []string{
			"spec.intent Required", "spec.requester Required", "spec.target Invalid",
		}},
		{"upper case", spec(strings.ToUpper(uid), "a", "Ask"), "", []string{
			"spec.intent NotSupported", "spec.requester Invalid", "spec.target.pod.uid Invalid",
		}},
		{"reserved", spec(uid, "a.k8s.io/b", "Eviction"), "", []string{"spec.requester Invalid"}},
		{"withdrawn", spec(uid, "example.com/a", "Withdrawn"), valid, nil},
		{"another requester", spec(uid, "example.com/b", "Eviction"), valid, []string{
			"spec.requester Invalid",
		}},
		{"another target", `{'spec':{'requester':'example.com/a','intent':'Eviction'}}`, valid, []string{
			"spec.target Invalid",
		}},
	} {
		obj := decode[lifecyclev1alpha1.EvictionRequest](t, c.document)
		var errs field.ErrorList
		if c.old == "" {
			errs = k.Validate(t.Context(), obj)
		} else {
			errs = k.ValidateUpdate(t.Context(), obj, decode[lifecyclev1alpha1.EvictionRequest](t, c.old))
		}
		if got := kindtest.Causes(errs); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	status := func(generation string) *lifecyclev1alpha1.EvictionRequest {
		return decode[lifecyclev1alpha1.EvictionRequest](t,
			`{'status':{'observedGeneration':`+generation+`}}`)
	}
	for _, c := range [][3]string{
		{"1", "null", ""},
		{"0", "null", "i"},
		{"2", "1", ""},
		{"1", "2", "i"},
		{"null", "1", "i"},
		{"null", "null", ""},
	} {
		if errs := k.Status.Validate(t.Context(), status(c[0]), status(c[1])); (len(errs) > 0) !=
			(c[2] != "") {
			t.Errorf("from generation %s to %s: %v", c[1], c[0], errs)
		}
	}
}

// TestTurns checks how two responders take turns. A test case gives the states of both responders
// and how long ago the active ones started.
func TestTurns(t *testing.T) {
	t.Parallel()
	now := time.Now()
	status := func(states string, heard time.Duration) *lifecyclev1alpha1.EvictionStatus {
		s := &lifecyclev1alpha1.EvictionStatus{}
		for i, state := range strings.Fields(states) {
			name := fmt.Sprintf("example.com/%d", i)
			s.TargetResponders = append(s.TargetResponders, turn{
				Name:     name,
				Priority: new(int32(100 - i)),
				State:    lifecyclev1alpha1.ResponderStateType(state),
			})
			r := report{Name: name}
			if state != "Inactive" {
				r.StartTime = &metav1.Time{Time: now.Add(-heard)}
			}
			s.Responders = append(s.Responders, r)
		}
		return s
	}
	for _, c := range []struct {
		name, then, now string
		heard           time.Duration
		change          func(s *lifecyclev1alpha1.EvictionStatus)
		want            []string
	}{
		{"first turn", "", "Active Inactive", 0, nil, nil},
		{"nobody's turn", "", "Inactive Inactive", 0, nil, []string{
			"status.targetResponders[0].state Invalid",
		}},
		{"both at once", "", "Active Active", 0, nil, []string{
			"status.targetResponders[1].state Forbidden", "status.targetResponders[1].state Invalid",
		}},
		{"unknown state", "", "Active Lost", time.Hour, func(s *lifecyclev1alpha1.EvictionStatus) {
			s.Responders[0].StartTime = &metav1.Time{Time: now}
		}, []string{
			"status.responders[1].startTime Invalid", "status.targetResponders[1].state Invalid",
			"status.targetResponders[1].state NotSupported",
		}},
		{"no priority", "", "Active Inactive", 0, func(s *lifecyclev1alpha1.EvictionStatus) {
			s.TargetResponders[0].Priority = nil
		}, []string{"status.targetResponders[0].priority Required"}},
		{"no report", "", "Active Inactive", 0, func(s *lifecyclev1alpha1.EvictionStatus) {
			s.Responders = s.Responders[:1]
		},
			[]string{"status.responders Invalid", "status.targetResponders[1] Invalid"}},
		{"no start", "", "Active Inactive", 0, func(s *lifecyclev1alpha1.EvictionStatus) {
			s.Responders[0].StartTime = nil
		}, []string{"status.responders[0].startTime Required"}},
		{
			"silent for long", "Active Inactive", "Interrupted Active", 21 * time.Minute,
			func(s *lifecyclev1alpha1.EvictionStatus) {
				s.Responders[1].StartTime = nil
			}, []string{"status.responders[1].startTime Required"},
		},
		{"still at work", "Active Inactive", "Interrupted Inactive", time.Minute, nil,
			[]string{
				"status.targetResponders[0].state Forbidden", "status.targetResponders[1].state Invalid",
			}},
		{"others", "Active Inactive", "Active", 0, nil, []string{"status.targetResponders Invalid"}},
		{
			"completed and evicted", "Active Inactive", "Completed Inactive", time.Minute,
			func(s *lifecyclev1alpha1.EvictionStatus) {
				s.Conditions = []metav1.Condition{{
					Type:               "TargetEvicted",
					Status:             "True",
					Reason:             "PodDeleted",
					LastTransitionTime: metav1.Time{Time: now},
				}}
			}, nil,
		},
		{
			"heartbeat", "Active Inactive", "Active Inactive", time.Minute,
			func(s *lifecyclev1alpha1.EvictionStatus) {
				s.Responders[0].HeartbeatTime = &metav1.Time{Time: now}
			}, nil,
		},
		{
			"heartbeat of tomorrow", "Active Inactive", "Active Inactive", time.Minute,
			func(s *lifecyclev1alpha1.EvictionStatus) {
				s.Responders[0].HeartbeatTime = &metav1.Time{Time: now.Add(24 * time.Hour)}
			}, []string{"status.responders[0].heartbeatTime Invalid"},
		},
		{
			"message of one who waits", "Active Inactive", "Active Inactive", time.Minute,
			func(s *lifecyclev1alpha1.EvictionStatus) {
				s.Responders[1].Message = new("me too")
			}, []string{"status.responders[1] Invalid"},
		},
	} {
		was := status(c.then, c.heard)
		is := status(c.now, c.heard)
		if c.change != nil {
			c.change(is)
		}
		if got := kindtest.Causes(validateEvictionStatus(is, was,
			field.NewPath("status"), now)); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}
