package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

const (
	defaultWebhookPort    = 443
	defaultWebhookTimeout = 10
	maxWebhookTimeout     = 30
)

var (
	noSideEffects  = sets.New(admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun)
	anySideEffects = noSideEffects.Union(sets.New(admissionv1.SideEffectClassSome,
		admissionv1.SideEffectClassUnknown))
	reviewVersions = sets.New("v1", "v1beta1")
)

// webhook is what validating and mutating webhooks have in common: everything but the reinvocation
// policy.
type webhook = admissionv1.ValidatingWebhook

func defaultWebhook(w *webhook) {
	setDefault(&w.FailurePolicy, admissionv1.Fail)
	setDefault(&w.MatchPolicy, admissionv1.Equivalent)
	setDefault(&w.NamespaceSelector, metav1.LabelSelector{})
	setDefault(&w.ObjectSelector, metav1.LabelSelector{})
	setDefault(&w.TimeoutSeconds, defaultWebhookTimeout)
	if w.ClientConfig.Service != nil {
		setDefault(&w.ClientConfig.Service.Port, defaultWebhookPort)
	}
	for i := range w.Rules {
		defaultRule(&w.Rules[i].Rule)
	}
}

// tolerated says which mistakes an updated configuration may keep because the stored one has them:
// older versions accepted them.
type tolerated struct {
	sideEffects    bool
	reviewVersions bool
	duplicateNames bool
	labelValues    bool
	// conditions is set if no match condition has changed. They are not validated then.
	conditions bool
	// stored holds the match condition expressions in etcd.
	stored sets.Set[string]
}

func toleratedIn(hooks, old []webhook) tolerated {
	t := tolerated{stored: sets.New[string](), conditions: len(hooks) == len(old)}
	names := sets.New[string]()
	for i, w := range old {
		if w.SideEffects == nil || !noSideEffects.Has(*w.SideEffects) {
			t.sideEffects = true
		}
		if !sets.New(w.AdmissionReviewVersions...).HasAny(reviewVersions.UnsortedList()...) {
			t.reviewVersions = true
		}
		if names.Has(w.Name) {
			t.duplicateNames = true
		}
		names.Insert(w.Name)
		if metavalidation.LabelSelectorHasInvalidLabelValue(w.NamespaceSelector) ||
			metavalidation.LabelSelectorHasInvalidLabelValue(w.ObjectSelector) {
			t.labelValues = true
		}
		if t.conditions && !equality.Semantic.DeepEqual(hooks[i].MatchConditions, w.MatchConditions) {
			t.conditions = false
		}
		for _, c := range w.MatchConditions {
			t.stored.Insert(c.Expression)
		}
	}
	return t
}

func validateWebhooks(hooks []webhook, t tolerated) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range hooks {
		w, at := &hooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(w, t, at)...)
		if w.Name != "" && !t.duplicateNames && names.Has(w.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), w.Name))
		}
		names.Insert(w.Name)
	}
	return errs
}

func validateWebhook(w *webhook, t tolerated, at *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), w.Name)
	for i := range w.Rules {
		errs = append(errs, ruleWithOperations(&w.Rules[i], at.Child("rules").Index(i))...)
	}
	errs = append(errs, oneOf(w.FailurePolicy, failurePolicies, at.Child("failurePolicy"))...)
	errs = append(errs, oneOf(w.MatchPolicy, matchPolicies, at.Child("matchPolicy"))...)

	allowed := noSideEffects
	if t.sideEffects {
		allowed = anySideEffects
	}
	if w.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"),
			"must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, oneOf(w.SideEffects, allowed, at.Child("sideEffects"))...)
	if s := w.TimeoutSeconds; s != nil && (*s < 1 || *s > maxWebhookTimeout) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *s,
			"the timeout value must be between 1 and 30 seconds"))
	}

	options := metavalidation.LabelSelectorValidationOptions{
		AllowInvalidLabelValueInSelector: t.labelValues,
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(w.NamespaceSelector, options,
		at.Child("namespaceSelector"))...)
	errs = append(errs, metavalidation.ValidateLabelSelector(w.ObjectSelector, options,
		at.Child("objectSelector"))...)

	client := at.Child("clientConfig")
	url, service := w.ClientConfig.URL, w.ClientConfig.Service
	switch {
	case (url == nil) == (service == nil):
		errs = append(errs, field.Required(client, "exactly one of url or service is required"))
	case url != nil:
		errs = append(errs, webhookutil.ValidateWebhookURL(client.Child("url"), *url, true)...)
	default:
		port := int32(defaultWebhookPort)
		if service.Port != nil {
			port = *service.Port
		}
		// kube-apiserver confuses the two names and reports a missing name as a missing namespace.
		errs = append(errs, webhookutil.ValidateWebhookService(client.Child("service"), service.Name,
			service.Namespace, service.Path, port)...)
	}

	if !t.conditions {
		e := &expressions{stored: t.stored}
		errs = append(errs, e.matchConditions(w.MatchConditions, at.Child("matchConditions"))...)
	}
	return append(errs, validateReviewVersions(w.AdmissionReviewVersions, t.reviewVersions,
		at.Child("admissionReviewVersions"))...)
}

func validateReviewVersions(versions []string, unknown bool, at *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of v1, v1beta1")}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, version := range versions {
		if seen.Has(version) {
			errs = append(errs, field.Invalid(at.Index(i), version, "is listed more than once"))
			continue
		}
		seen.Insert(version)
		errs = append(errs, rules.Invalid(at.Index(i), version,
			validation.IsDNS1035Label(version))...)
	}
	if !unknown && !seen.HasAny(reviewVersions.UnsortedList()...) {
		errs = append(errs, field.Invalid(at, versions, "must specify one of v1, v1beta1"))
	}
	return errs
}
