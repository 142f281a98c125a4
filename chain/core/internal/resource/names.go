package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/volumesources"
)

// asCreate and asUpdate return the operation to pass to the generated validation. Fields of alpha
// features stay forbidden.
func asCreate() operation.Operation {
	return operation.Operation{
		Type:    operation.Create,
		Options: map[string]bool{"DRAPartitionableDevicesType": false},
	}
}

func asUpdate() operation.Operation {
	op := asCreate()
	op.Type = operation.Update
	return op
}

// together joins the errors of the handwritten rules and those of the enforced generated rules,
// without duplicates. Generated rules that are still alpha are not enforced.
func together(ctx context.Context, written, generated field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for _, err := range append(written, validate.FilterEnforcedDeclarativeErrors(ctx,
		generated, true)...) {
		key := string(err.Type) + " " + err.Field
		if !seen.Has(key) {
			errs = append(errs, err)
		}
		seen.Insert(key)
	}
	return errs
}

// poolName requires DNS subdomains separated by slashes.
func poolName(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(value) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(at, "" /* not the name */, resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(value, "/") {
		errs = append(errs, rules.Invalid(at, value, validation.IsDNS1123Subdomain(part))...)
	}
	return errs
}

// qualifiedName requires a C identifier, optionally preceded by a domain and a slash. Like
// kube-apiserver, it accepts any value with more than one slash.
func qualifiedName(value string, at *field.Path) field.ErrorList {
	domain, id, found := strings.Cut(value, "/")
	switch {
	case !found:
		return identifier(value, at)
	case strings.Contains(id, "/"):
		return nil
	}
	var errs field.ErrorList
	if domain == "" {
		errs = append(errs, field.Invalid(at, value, "must have a domain before the slash"))
	} else {
		errs = append(errs, volumesources.ValidateCSIDriverName(domain, at)...)
	}
	if id == "" {
		return append(errs, field.Invalid(at, value, "must have a name after the slash"))
	}
	return append(errs, identifier(id, at)...)
}

// fullyQualifiedName requires a qualified name with a domain.
func fullyQualifiedName(value string, at *field.Path) field.ErrorList {
	errs := qualifiedName(value, at)
	if !strings.Contains(value, "/") {
		errs = append(errs, field.Invalid(at, value, "must start with a domain and a slash"))
	}
	return errs
}

func identifier(id string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(at, "" /* not the name */, resourcev1.DeviceMaxIDLength))
	}
	return append(errs, rules.Invalid(at, id, validation.IsCIdentifier(id))...)
}

func subdomain(value string, at *field.Path) field.ErrorList {
	return rules.Invalid(at, value, validation.IsDNS1123Subdomain(value))
}

func label(value string, at *field.Path) field.ErrorList {
	return rules.Invalid(at, value, validation.IsDNS1123Label(value))
}

func labelValue(value string, at *field.Path) field.ErrorList {
	return rules.Invalid(at, value, validation.IsValidLabelValue(value))
}

// each checks the elements of a list. If the list is too long, it reports only that.
func each[T any](
	list []T, limit int, at *field.Path, check func(*T, *field.Path) field.ErrorList,
) field.ErrorList {
	if len(list) > limit {
		return field.ErrorList{field.TooMany(at, len(list), limit)}
	}
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, check(&list[i], at.Index(i))...)
	}
	return errs
}

// unique is like each, but also requires the keys of the elements to be distinct.
func unique[T any, K comparable](
	list []T, limit int, at *field.Path, key func(*T) K, check func(*T, *field.Path) field.ErrorList,
) field.ErrorList {
	seen := sets.New[K]()
	return each(list, limit, at, func(element *T, at *field.Path) field.ErrorList {
		errs := check(element, at)
		k := key(element)
		if seen.Has(k) {
			errs = append(errs, field.Duplicate(at, k))
		}
		seen.Insert(k)
		return errs
	})
}

// object requires a JSON object. A stored object may be longer than the limit.
func object(raw runtime.RawExtension, stored bool, limit int, at *field.Path) field.ErrorList {
	var value any
	switch {
	case len(raw.Raw) == 0:
		return field.ErrorList{field.Required(at, "")}
	case !stored && len(raw.Raw) > limit:
		return field.ErrorList{field.TooLong(at, "" /* not the data */, limit)}
	}
	if err := json.Unmarshal(raw.Raw, &value); err != nil {
		return field.ErrorList{
			field.Invalid(at, "<value omitted>", fmt.Sprintf("must be valid JSON: %v", err)),
		}
	}
	switch value.(type) {
	case nil:
		return field.ErrorList{field.Required(at, "")}
	case map[string]any:
		return nil
	}
	return field.ErrorList{field.Invalid(at, "<value omitted>", "must be a JSON object")}
}
