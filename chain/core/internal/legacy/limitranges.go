package legacy

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
	"github.com/kinproc/kinproc/chain/core/internal/rules/quantities"
	"github.com/kinproc/kinproc/chain/kind"
)

var limitTypes = sets.New(corev1.LimitTypePod, corev1.LimitTypeContainer,
	corev1.LimitTypePersistentVolumeClaim)

// LimitRanges declares limitranges.
func LimitRanges() *kind.Kind[*corev1.LimitRange] {
	return &kind.Kind[*corev1.LimitRange]{
		Plural:     "limitranges",
		ShortNames: []string{"limits"},
		Default: func(l *corev1.LimitRange) {
			for i := range l.Spec.Limits {
				item := &l.Spec.Limits[i]
				if item.Type == corev1.LimitTypeContainer {
					defaultLimits(item)
				}
				quantities.RoundUp(item.Max, item.Min, item.Default, item.DefaultRequest,
					item.MaxLimitRequestRatio)
			}
		},
		PrepareCreate: func(_ context.Context, l *corev1.LimitRange) {
			if l.Name == "" {
				l.Name = string(uuid.NewUUID())
			}
		},
		Validate:       validateLimitRange,
		CreateOnUpdate: true,
		Quirks:         kind.Quirks{NameOnUpdate: true},
	}
}

// defaultLimits fills in default from max, and defaultRequest from default and then from min.
func defaultLimits(item *corev1.LimitRangeItem) {
	item.Default = withMissing(item.Default, item.Max)
	item.DefaultRequest = withMissing(withMissing(item.DefaultRequest, item.Default), item.Min)
}

func withMissing(list, from corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	for name, q := range from {
		if _, ok := list[name]; !ok {
			list[name] = q.DeepCopy()
		}
	}
	return list
}

func validateLimitRange(_ context.Context, l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.LimitType]()
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, at.Child("type"))...)
		if seen.Has(item.Type) {
			errs = append(errs, field.Duplicate(at.Child("type"), item.Type))
		}
		seen.Insert(item.Type)
		errs = append(errs, validateLimits(item, at)...)
	}
	return errs
}

func validateLimitType(t corev1.LimitType, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, rules.Invalid(at, t, validation.IsQualifiedName(string(t)))...)
	if len(errs) == 0 && !strings.Contains(string(t), "/") && !limitTypes.Has(t) {
		errs = append(errs, field.Invalid(at, t, "must be a standard limit type or have a domain prefix"))
	}
	return errs
}

func validateLimits(item *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[corev1.ResourceName]()
	check := func(list corev1.ResourceList, child string) {
		for name := range list {
			names.Insert(name)
			key := at.Child(child).Key(string(name))
			if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
				errs = append(errs, quantities.ValidateContainerResourceName(name, key)...)
			} else {
				errs = append(errs, quantities.ValidateResourceName(name, key)...)
			}
		}
	}
	check(item.Max, "max")
	check(item.Min, "min")
	if item.Type == corev1.LimitTypePod {
		for child, list := range map[string]corev1.ResourceList{
			"default":        item.Default,
			"defaultRequest": item.DefaultRequest,
		} {
			if len(list) > 0 {
				errs = append(errs, field.Forbidden(at.Child(child),
					"may not be specified for type Pod; specify it for type Container"))
			}
		}
	} else {
		check(item.Default, "default")
		check(item.DefaultRequest, "defaultRequest")
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, hasMin := item.Min[corev1.ResourceStorage]
		_, hasMax := item.Max[corev1.ResourceStorage]
		if !hasMin && !hasMax {
			errs = append(errs, field.Required(at.Child("limits"),
				"either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	check(item.MaxLimitRequestRatio, "maxLimitRequestRatio")

	compared := *item
	if item.Type == corev1.LimitTypePod {
		compared.Default, compared.DefaultRequest = nil, nil // already forbidden above
	}
	for _, name := range sets.List(names) {
		errs = append(errs, validateOrder(&compared, name, at)...)
		errs = append(errs, validateRatio(item, name, at)...)
	}
	return errs
}

// validateOrder checks that min ≤ defaultRequest ≤ default ≤ max, for those that are set.
func validateOrder(
	item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	ordered := func(small, large corev1.ResourceList, smallName, largeName, blame string) {
		s, ok := small[name]
		l, both := large[name]
		if ok && both && s.Cmp(l) > 0 {
			errs = append(errs, field.Invalid(at.Child(blame).Key(string(name)), s.String(),
				fmt.Sprintf("%s (%s) must not be greater than %s (%s)",
					smallName, s.String(), largeName, l.String())))
		}
	}
	ordered(item.Min, item.Max, "min", "max", "min")
	ordered(item.Min, item.DefaultRequest, "min", "defaultRequest", "defaultRequest")
	ordered(item.DefaultRequest, item.Max, "defaultRequest", "max", "defaultRequest")
	ordered(item.DefaultRequest, item.Default, "defaultRequest", "default", "defaultRequest")
	ordered(item.Min, item.Default, "min", "default", "default")
	ordered(item.Default, item.Max, "default", "max", "default")

	request, hasRequest := item.DefaultRequest[name]
	limit, hasLimit := item.Default[name]
	overcommit := quantities.IsNativeResource(name) && !quantities.IsHugePages(name)
	if hasRequest && hasLimit && !overcommit && request.Cmp(limit) != 0 {
		errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(string(name)), request.String(),
			"must equal the default limit: the resource cannot be overcommitted"))
	}
	return errs
}

func validateRatio(
	item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path,
) field.ErrorList {
	ratio, ok := item.MaxLimitRequestRatio[name]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	key := at.Child("maxLimitRequestRatio").Key(string(name))
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(key, ratio.String(),
			fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	least, hasMin := item.Min[name]
	most, hasMax := item.Max[name]
	if hasMin && hasMax {
		// Like kube-apiserver, compare in thousandths unless they overflow.
		wanted, possible := float64(ratio.Value()), float64(most.Value())/float64(least.Value())
		if max(ratio.Value(), least.Value(), most.Value()) < resource.MaxMilliValue {
			wanted, possible = float64(ratio.MilliValue())/1000,
				float64(most.MilliValue())/float64(least.MilliValue())
		}
		if wanted > possible {
			errs = append(errs, field.Invalid(key, ratio.String(),
				fmt.Sprintf("must not be greater than max/min, which is %f", possible)))
		}
	}
	return errs
}
