package server

import (
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kinproc/kinproc/server/internal/flags"
	"github.com/kinproc/kinproc/server/internal/option"
)

// An entry is what there is to say about an option, but for its purpose, which is in the comment of
// the field. The flag, the checks, the names in errors and the flags of the stand-in for
// kube-apiserver follow from it.
type entry struct {
	field any // its address
	flag  string
	help  string // of the flag; without it, somebody else adds the flag, or there is none
	// describe returns the help instead. The table is read without flags too, such as by each
	// start.
	describe func() string
	def      any      // what the zero value stands for
	check    check    // finds what is wrong with the value
	holds    contents // of the file that the option names
	// negated is set if the flag is true when the option is false.
	negated bool
	// sandbox is set if the stand-in for kube-apiserver does not have the flag.
	sandbox bool
	// noAccess says why the option does not decide who may do what. TestReach tries all others.
	noAccess string
}

// entries returns those of all sections. The options have been completed, or are being completed.
func entries(o *Options) []entry {
	var all []entry
	for _, s := range table(o) {
		all = append(all, s.entries...)
	}
	return all
}

// complete sets the default in the place of the zero value. A flag can be 0, which means no limit.
func (e entry) complete(flags bool) {
	value := reflect.ValueOf(e.field).Elem()
	unset := value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0
	if e.def != nil && unset && (!flags || !value.CanInt()) {
		value.Set(reflect.ValueOf(e.def))
	}
}

// bind adds the flag, if the entry has help for it.
func (e entry) bind(to *pflag.FlagSet) {
	if e.describe != nil {
		e.help = e.describe()
	}
	if e.help == "" {
		return
	}
	var flag *pflag.Flag
	if off, ok := e.field.(*bool); ok && e.negated {
		flag = flags.AddNegated(to, off, e.flag, e.help)
	} else {
		flag = flags.Add(to, e.field, e.flag, e.help)
	}
	if e.sandbox {
		flags.Annotate(flag, flags.Sandbox, "")
	}
	if e.noAccess != "" {
		flags.Annotate(flag, flags.NoAccess, e.noAccess)
	}
}

// BindFlags is for package serverflags, whose Add documents it.
func (o *Options) BindFlags(sections flags.Sections) {
	o.complete()
	o.flags = true
	for _, s := range table(o) {
		set := sections.FlagSet(s.name)
		for _, e := range s.entries {
			e.bind(set)
		}
	}
	flags.AddIneffective(sections.FlagSet("API"), &o.ineffective)
	plugins := libraryAdmission(o)
	plugins.AddFlags(sections.FlagSet("admission"))
	flags.DescribePlugins(sections.FlagSet("admission"), plugins)
	libraryAudit(o).AddFlags(sections.FlagSet("auditing"))
}

// complete sets the defaults.
func (o *Options) complete() {
	if o.Admission == nil {
		o.Admission = NewAdmissionOptions()
	}
	if o.Audit == nil {
		o.Audit = NewAuditOptions()
	}
	o.EmulatedVersion = strings.TrimPrefix(strings.TrimPrefix(o.EmulatedVersion, "kube="), "v")
	if o.flags && len(o.Controllers) == 0 {
		o.Controllers = []string{"*"}
	}
	for _, e := range entries(o) {
		e.complete(o.flags)
	}
}

// Validate returns everything that is wrong with the options, such as
//
//	Options.SecurePort: 70000 is not between 0 and 65535
//
// If the options are bound to flags, by package serverflags, the errors name flags instead of
// fields. Problems that do not show in the options themselves, such as an unreadable file, are
// reported by [Server.Start].
func (o *Options) Validate() []error {
	completed := *o
	completed.complete()
	return completed.validate()
}

// validate validates completed options.
func (o *Options) validate() []error {
	var errs []error
	for _, e := range entries(o) {
		if e.check != nil {
			e.check(func(format string, args ...any) {
				errs = append(errs, o.wrong(e.field, format, args...))
			})
		}
	}
	return slices.Concat(errs,
		o.libraryErrors(&o.Admission, libraryAdmission(o).Validate()),
		o.libraryErrors(&o.Audit, libraryAudit(o).Validate()))
}

// libraryErrors adds the field's name to errors about options of the Kubernetes libraries. These
// errors already name the flag, so they are returned unchanged if the options are bound to flags.
func (o *Options) libraryErrors(field any, errs []error) []error {
	if o.flags {
		return errs
	}
	named := make([]error, len(errs))
	for i, err := range errs {
		named[i] = o.wrong(field, "%w", err)
	}
	return named
}

// names says what options are called in messages: by their flags if they are bound to flags,
// otherwise by their fields.
func (o *Options) names() option.Names {
	if !o.flags {
		return option.Names{}
	}
	return option.Names{Flag: func(field string) string {
		names := fieldNames(o)
		for _, e := range entries(o) {
			if names[e.field] == field {
				return e.flag
			}
		}
		return ""
	}}
}

// name returns the name of the option with an address in messages.
func (o *Options) name(field any) string { return o.names().Of(fieldNames(o)[field]) }

// wrong returns an error that names the option with an address.
func (o *Options) wrong(field any, format string, args ...any) error {
	return o.names().Wrong(fieldNames(o)[field], format, args...)
}

// fieldNames returns the names of fields by their addresses.
func fieldNames(o *Options) map[any]string {
	names := map[any]string{}
	var add func(of reflect.Value, prefix string)
	add = func(of reflect.Value, prefix string) {
		for i := range of.NumField() {
			field, value := of.Type().Field(i), of.Field(i)
			if !field.IsExported() {
				continue
			}
			names[value.Addr().Interface()] = prefix + field.Name
			if value.Type() == reflect.TypeFor[*AdmissionOptions]() ||
				value.Type() == reflect.TypeFor[*AuditOptions]() {
				value = value.Elem()
			}
			if value.Kind() == reflect.Struct {
				add(value, prefix+field.Name+".")
			}
		}
	}
	add(reflect.ValueOf(o).Elem(), "")
	return names
}
