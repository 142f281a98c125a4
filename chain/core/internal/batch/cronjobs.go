package batch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // so that time zones are available on every machine

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/chain/core/internal/rules/podspec"
	"github.com/kinproc/kinproc/chain/core/internal/rules/workloads"
	"github.com/kinproc/kinproc/chain/kind"
)

// maxCronJobName leaves 11 of the 63 characters of a job's name for the time that the controller
// appends.
const maxCronJobName = 52

var (
	concurrencyPolicies = sets.New(batchv1.AllowConcurrent, batchv1.ForbidConcurrent,
		batchv1.ReplaceConcurrent)
	// timeZonePart matches a component of a time zone name, as defined by
	// https://data.iana.org/time-zones/theory.html#naming. Digits and plus signs occur in old
	// names.
	timeZonePart = regexp.MustCompile(`^[A-Za-z0-9._+][A-Za-z0-9._+-]{0,13}$`)
)

// CronJobs declares cronjobs.
func CronJobs() *kind.Kind[*batchv1.CronJob] {
	path := field.NewPath("spec", "jobTemplate", "spec")
	return &kind.Kind[*batchv1.CronJob]{
		Plural:     "cronjobs",
		ShortNames: []string{"cj"},
		Categories: []string{"all"},
		Default:    defaultCronJob,
		PrepareCreate: func(_ context.Context, c *batchv1.CronJob) {
			c.Spec.JobTemplate.Spec.Scheduling = nil
			podspec.DropDisabledFields(&c.Spec.JobTemplate.Spec.Template, nil)
		},
		PrepareUpdate: func(_ context.Context, c, old *batchv1.CronJob) {
			if old.Spec.JobTemplate.Spec.Scheduling == nil {
				c.Spec.JobTemplate.Spec.Scheduling = nil
			}
			podspec.DropDisabledFields(&c.Spec.JobTemplate.Spec.Template,
				&old.Spec.JobTemplate.Spec.Template)
		},
		Validate: func(_ context.Context, c *batchv1.CronJob) field.ErrorList {
			errs := validateCronJobSpec(&c.Spec, nil)
			// Cron jobs created before this rule existed may have longer names.
			if len(c.Name) > maxCronJobName {
				errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name,
					fmt.Sprintf("must be no more than %d characters", maxCronJobName)))
			}
			return errs
		},
		ValidateUpdate: func(_ context.Context, c, old *batchv1.CronJob) field.ErrorList {
			return validateCronJobSpec(&c.Spec, &old.Spec)
		},
		Table: kind.Table[*batchv1.CronJob]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Schedule", Description: "Schedule of the jobs in cron format."},
				{Name: "Timezone", Description: "Time zone of the schedule; if unset, the controller's."},
				{Name: "Suspend", Type: "boolean", Description: "Whether no new jobs are started."},
				{Name: "Active", Type: "integer", Description: "Jobs that are running."},
				{Name: "Last Schedule", Description: "Time since the last job was started."},
				kind.AgeColumn(),
				{Name: "Containers", Priority: 1, Description: "Names of the template's containers."},
				{Name: "Images", Priority: 1, Description: "Images of the template's containers."},
				{Name: "Selector", Priority: 1, Description: "Selector of the job template."},
			},
			Row: cronJobRow,
		},
		Warnings: func(_ context.Context, c, old *batchv1.CronJob) []string {
			var warnings []string
			if old == nil {
				warnings = append(workloads.PodNameWarnings(c.Name),
					jobWarnings(path, &c.Spec.JobTemplate.Spec, nil)...)
			} else if c.Generation != old.Generation {
				warnings = jobWarnings(path, &c.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec.Template)
			}
			if strings.Contains(c.Spec.Schedule, "TZ") {
				warnings = append(warnings,
					"spec.schedule: a time zone in the schedule is not supported; use spec.timeZone instead")
			}
			return warnings
		},
		Status:     &kind.Status[*batchv1.CronJob]{},
		Generation: true,
		Quirks:     kind.Quirks{StatusAnyFinalizers: true},
	}
}

func cronJobRow(c *batchv1.CronJob) []any {
	last, suspend := "<none>", "<unset>"
	if c.Status.LastScheduleTime != nil {
		last = kind.Since(c.Status.LastScheduleTime)
	}
	if c.Spec.Suspend != nil {
		suspend = "False"
		if *c.Spec.Suspend {
			suspend = "True"
		}
	}
	names, images := podspec.ContainerCells(&c.Spec.JobTemplate.Spec.Template.Spec)
	return []any{
		c.Name, c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, "<none>"),
		suspend, int64(len(c.Status.Active)), last, kind.Age(c), names, images,
		metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
	}
}

// defaultCronJob leaves the defaults of the job spec to the jobs, which get them when they are
// created.
func defaultCronJob(c *batchv1.CronJob) {
	podspec.SetDefaults(&c.Spec.JobTemplate.Spec.Template.Spec)
	if c.Spec.ConcurrencyPolicy == "" {
		c.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	defaultTo(&c.Spec.Suspend, false)
	defaultTo(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	defaultTo(&c.Spec.FailedJobsHistoryLimit, 1)
	if policy := c.Spec.JobTemplate.Spec.PodFailurePolicy; policy != nil {
		defaultPodConditions(policy)
	}
}

func validateCronJobSpec(spec, old *batchv1.CronJobSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSchedule(spec, old, path.Child("schedule"))
	errs = append(errs, workloads.ValidateCounters(path,
		workloads.Counter{
			Field: "startingDeadlineSeconds",
			Value: ptr.Deref(spec.StartingDeadlineSeconds, 0),
		},
		workloads.Counter{
			Field: "successfulJobsHistoryLimit",
			Value: int64(ptr.Deref(spec.SuccessfulJobsHistoryLimit, 0)),
		},
		workloads.Counter{
			Field: "failedJobsHistoryLimit",
			Value: int64(ptr.Deref(spec.FailedJobsHistoryLimit, 0)),
		})...)
	if zone := spec.TimeZone; zone != nil &&
		(old == nil || old.TimeZone == nil || *old.TimeZone != *zone) {
		if err := checkTimeZone(*zone); err != nil {
			errs = append(errs, field.Invalid(path.Child("timeZone"), *zone, err.Error()))
		}
	}
	errs = append(errs, validateOneOf(spec.ConcurrencyPolicy, concurrencyPolicies,
		path.Child("concurrencyPolicy"))...)

	job, jobPath := &spec.JobTemplate.Spec, path.Child("jobTemplate", "spec")
	opts := podspec.OptionsFor(&job.Template, nil)
	if old != nil {
		opts = podspec.OptionsFor(&job.Template, &old.JobTemplate.Spec.Template)
	}
	errs = append(errs, validateJobSpec(job, jobPath, opts)...)
	if job.Selector != nil {
		errs = append(errs, field.Invalid(jobPath.Child("selector"), job.Selector,
			"may not be set, because a selector is generated for each job"))
	}
	if ptr.Deref(job.ManualSelector, false) {
		errs = append(errs, field.NotSupported(jobPath.Child("manualSelector"), true,
			[]string{"nil", "false"}))
	}
	return errs
}

// validateSchedule rejects a time zone in the schedule, unless the old schedule has one too.
func validateSchedule(spec, old *batchv1.CronJobSpec, path *field.Path) field.ErrorList {
	if spec.Schedule == "" {
		return field.ErrorList{field.Required(path, "must specify when jobs start")}
	}
	var errs field.ErrorList
	if err := checkSchedule(spec.Schedule); err != nil {
		errs = append(errs, field.Invalid(path, spec.Schedule, err.Error()))
	}
	if !strings.Contains(spec.Schedule, "TZ") {
		return errs
	}
	switch {
	case old == nil || !strings.Contains(old.Schedule, "TZ"):
		errs = append(errs, field.Invalid(path, spec.Schedule,
			"must not contain a time zone; use timeZone instead"))
	case spec.TimeZone != nil:
		errs = append(errs, field.Invalid(path, spec.Schedule,
			"must not contain a time zone when timeZone is set"))
	}
	return errs
}

func checkSchedule(schedule string) error {
	// The parser panics on a time zone with nothing after it.
	if (strings.HasPrefix(schedule, "TZ=") || strings.HasPrefix(schedule, "CRON_TZ=")) &&
		!strings.Contains(schedule, " ") {
		return errors.New("must not consist of a time zone only")
	}
	_, err := cron.ParseStandard(schedule)
	return err
}

// checkTimeZone requires the name of a time zone. It is used as a file name too, so it must not
// lead out of the time zone database.
func checkTimeZone(name string) error {
	if name == "" {
		return errors.New("must be unset or non-empty")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || !timeZonePart.MatchString(part) {
			return errors.New("must be the name of a time zone")
		}
	}
	if strings.EqualFold(name, "Local") {
		return errors.New("timeZone must be an explicit time zone as defined in " +
			"https://www.iana.org/time-zones")
	}
	_, err := time.LoadLocation(name)
	return err
}
