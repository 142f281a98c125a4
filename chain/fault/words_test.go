package fault_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/chain/fault"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, words := range []string{
		"conflict",
		"verb=update resource=deployments.apps subresource=status skip=2 times=1 conflict",
		"user=jane user-agent=op namespace=a name=b path=/healthz optional cut",
		"chance=0.25 seed=7 for=1m30s delay=2s",
		"fail=429 reason=TooManyRequests message=busy retry-after=3",
		"lag=5", "freeze", "freeze=17", "verb=watch expire-watch",
	} {
		f, err := fault.Parse(strings.Fields(words))
		if err != nil {
			t.Errorf("%s: %v", words, err)
		}
		if f.String() != words {
			t.Errorf("%s became %s", words, f.String())
		}
	}
	for words, want := range map[string]string{
		"":                                 "an effect is missing",
		"verb=update":                      "an effect is missing",
		"explode":                          "neither a field of a rule nor an effect",
		"verb=get,updat cut":               "verb: no request has the verb \"updat\"",
		"conflict=1":                       "takes no value",
		"conflict cut":                     "the effect is conflict already",
		"verb= cut":                        "a value is missing",
		"times=many cut":                   "is not a whole number",
		"times=-1 cut":                     "must not be negative",
		"chance=2 cut":                     "is not between 0 and 1",
		"chance=NaN cut":                   "is not between 0 and 1",
		"fail":                             "is not a whole number",
		"fail=200":                         "needs a code from 400 to 599",
		"delay=0s":                         "must be positive",
		"delay=61m":                        "must be at most 1h0m0s",
		"delay=99999999h":                  "is not a duration of at most 1h0m0s",
		"verb=create conflict":             "conflict is for update, patch, delete",
		"verb=get hold-watch":              "hold-watch is for watch",
		"subresource=status cut":           "needs a resource",
		"path=[ cut":                       "is not a pattern",
		"freeze=-1":                        "must not be negative",
		"lag=0":                            "positive number of revisions",
		"optional=true cut":                "takes no value",
		"cut reason=Gone":                  "for fail only",
		"fail=500 retry-after=-1":          "must not be negative",
		"for=99999999999999999999h cut":    "is not a duration",
		"skip=99999999999999999999999 cut": "out of range",
	} {
		if _, err := fault.Parse(strings.Fields(words)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", words, err, want)
		}
	}
}

func TestUnknownWordsHaveKnownOnes(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"conflct": "conflict", "resorce=a cut": "resource", "tims=1 cut": "times",
		"verb=lst cut": "list",
	} {
		_, err := fault.Parse(strings.Fields(words))
		var unknown *fault.UnknownError
		if !errors.As(err, &unknown) || !slices.Contains(unknown.Known, want) {
			t.Errorf("%q: %v, want an UnknownError that knows %s", words, err, want)
		}
	}
}

// FuzzParse checks that the words of a fault mean the same fault.
func FuzzParse(f *testing.F) {
	f.Add("verb=update times=1 conflict")
	f.Add("fail=503 reason=a message=b retry-after=1 chance=1e-3")
	f.Fuzz(func(t *testing.T, words string) {
		first, err := fault.Parse(strings.Fields(words))
		if err != nil {
			return
		}
		again, err := fault.Parse(strings.Fields(first.String()))
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Errorf("%q: %+v became %+v: %v", words, first, again, err)
		}
	})
}
