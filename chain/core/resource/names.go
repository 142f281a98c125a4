package resource

import (
	"encoding/json"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// asCreate and asUpdate are how the generated validation is told what happens. Fields of features that are alpha stay forbidden.
func asCreate() operation.Operation {
	return operation.Operation{Type: operation.Create, Options: map[string]bool{"DRAPartitionableDevicesType": false}}
}

func asUpdate() operation.Operation {
	op := asCreate()
	op.Type = operation.Update
	return op
}

// once drops errors that the generated and the written rules both found.
func once(errs field.ErrorList) field.ErrorList {
	var kept field.ErrorList
	seen := sets.New[string]()
	for _, err := range errs {
		key := string(err.Type) + " " + err.Field
		if !seen.Has(key) {
			kept = append(kept, err)
		}
		seen.Insert(key)
	}
	return kept
}

func required(value string, check func(string) []string, at *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for _, msg := range check(value) {
		errs = append(errs, field.Invalid(at, value, msg))
	}
	return errs
}

func label(value string, at *field.Path) field.ErrorList {
	return required(value, validation.IsDNS1123Label, at)
}

func driverName(value string, at *field.Path) field.ErrorList {
	if len(value) > resourcev1.DriverNameMaxLength {
		return field.ErrorList{field.TooLong(at, value, resourcev1.DriverNameMaxLength)}
	}
	return required(value, func(v string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(v)) }, at)
}

// poolName wants subdomains with slashes between them.
func poolName(value string, at *field.Path) field.ErrorList {
	if len(value) > resourcev1.PoolNameMaxLength {
		return field.ErrorList{field.TooLong(at, value, resourcev1.PoolNameMaxLength)}
	}
	return required(value, func(v string) []string {
		var msgs []string
		for part := range strings.SplitSeq(v, "/") {
			msgs = append(msgs, validation.IsDNS1123Subdomain(part)...)
		}
		return msgs
	}, at)
}

// qualifiedName wants an identifier of C, which a domain and a slash may precede; full names have a domain.
func qualifiedName(value string, full bool, at *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, id, found := strings.Cut(value, "/")
	if !found {
		domain, id = "", value
		if full {
			return field.ErrorList{field.Invalid(at, value, "must begin with a domain and /")}
		}
	}
	var errs field.ErrorList
	switch {
	case strings.Contains(id, "/"):
		errs = append(errs, field.Invalid(at, value, "must have one / at most"))
	case found && domain == "":
		errs = append(errs, field.Required(at, "the domain is missing"))
	case len(domain) > resourcev1.DeviceMaxDomainLength:
		errs = append(errs, field.TooLong(at, domain, resourcev1.DeviceMaxDomainLength))
	case found:
		errs = append(errs, required(domain, validation.IsDNS1123Subdomain, at)...)
	}
	switch {
	case id == "":
		errs = append(errs, field.Required(at, "the name is missing"))
	case len(id) > resourcev1.DeviceMaxIDLength:
		errs = append(errs, field.TooLong(at, id, resourcev1.DeviceMaxIDLength))
	case !strings.Contains(id, "/"):
		errs = append(errs, required(id, validation.IsCIdentifier, at)...)
	}
	return errs
}

// object wants a JSON object of limited size.
func object(raw runtime.RawExtension, limit int, at *field.Path) field.ErrorList {
	var value any
	switch err := json.Unmarshal(raw.Raw, &value); {
	case len(raw.Raw) == 0:
		return field.ErrorList{field.Required(at, "")}
	case len(raw.Raw) > limit:
		return field.ErrorList{field.TooLong(at, "" /* not the data */, limit)}
	case err != nil:
		return field.ErrorList{field.Invalid(at, "<value omitted>", fmt.Sprintf("is no JSON: %v", err))}
	case value == nil:
		return field.ErrorList{field.Required(at, "")}
	}
	if _, ok := value.(map[string]any); !ok {
		return field.ErrorList{field.Invalid(at, "<value omitted>", "must be a JSON object")}
	}
	return nil
}
