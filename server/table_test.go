package server

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kinproc/kinproc/server/internal/flags"
)

// Each field of Options has an entry, and each entry is one of a field.
func TestTableHasAllOptions(t *testing.T) {
	t.Parallel()
	var o Options
	o.complete()
	names, found := fieldNames(&o), map[string]bool{}
	for _, e := range entries(&o) {
		if names[e.field] == "" {
			t.Errorf("the entry of --%s is of no field", e.flag)
		}
		found[names[e.field]] = true
	}
	for _, name := range names {
		switch top, _, nested := strings.Cut(name, "."); {
		case top == "Admission" || top == "Audit": // their fields have flags of the library
		case !nested && (name == "RequestHeader" || name == "TokenWebhook" ||
			name == "AuthorizationWebhook"):
		case name == "Network" || name == "AuditBackend" || name == "Log": // they can be no flags
		case !found[name]:
			t.Errorf("Options.%s has no entry in the table", name)
		}
	}
}

// A field that is not set has the default, and so has its flag. A flag of a number can be 0.
func TestDefaultsOfFlags(t *testing.T) {
	t.Parallel()
	var fields, o Options
	fields.complete()
	var sections cliflag.NamedFlagSets
	o.BindFlags(flags.Sections{NamedFlagSets: &sections})
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sections.FlagSets {
		all.AddFlagSet(set)
	}
	for name, want := range map[string]string{
		"event-ttl": "1h0m0s", "history-kept": "1h0m0s", "quota-backend-bytes": "2147483648",
		"max-requests-inflight": "400", "default-not-ready-toleration-seconds": "300",
		"secure-port": "0", "bind-address": "127.0.0.1", "oidc-signing-algs": "[RS256]",
	} {
		if got := all.Lookup(name).DefValue; got != want {
			t.Errorf("the default of --%s is %s, want %s", name, got, want)
		}
	}
	ofFields := entries(&fields)
	for i, e := range entries(&o) {
		if e.def == nil {
			continue
		}
		value := reflect.ValueOf(e.field).Elem()
		want := reflect.ValueOf(e.def).Convert(value.Type()).Interface()
		of := reflect.ValueOf(ofFields[i].field).Elem().Interface()
		bound := value.Interface()
		if !reflect.DeepEqual(of, want) || !reflect.DeepEqual(bound, want) {
			t.Errorf("--%s is %v, and %v without flags; want %v", e.flag, bound, of, want)
		}
		switch f := all.Lookup(e.flag); f.Value.Type() {
		case "int", "int64", "duration":
			if err := f.Value.Set("0"); err != nil {
				t.Error(err)
			}
			if o.complete(); !reflect.Indirect(value).IsZero() {
				t.Errorf("--%s=0 became %v", e.flag, value)
			}
		}
	}
}

// What /flagz shows are the options, which others may be reading: it changes nothing of them.
func TestFlagsHaveTheirOwnPointers(t *testing.T) {
	t.Parallel()
	seconds := new(int64(1))
	o := Options{DefaultNotReadyTolerationSeconds: seconds}
	var sections cliflag.NamedFlagSets
	o.BindFlags(flags.Sections{NamedFlagSets: &sections})
	err := sections.FlagSet("admission").Set("default-not-ready-toleration-seconds", "2")
	if err != nil || *seconds != 1 || *o.DefaultNotReadyTolerationSeconds != 2 {
		t.Errorf("the flag set %d, and %d of the caller: %v", *o.DefaultNotReadyTolerationSeconds,
			*seconds, err)
	}
}
