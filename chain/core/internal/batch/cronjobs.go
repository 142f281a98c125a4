package batch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // so that time zones are known on every machine

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

// maxCronJobName leaves, of the 63 characters of a job's name, 11 for the time that the controller adds.
const maxCronJobName = 52

var (
	concurrencyPolicies = sets.New(batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
	// timeZonePart is a part of the name of a time zone, by https://data.iana.org/time-zones/theory.html#naming; digits and the plus sign
	// are in old names.
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
			podspec.DropDisabledFields(&c.Spec.JobTemplate.Spec.Template, &old.Spec.JobTemplate.Spec.Template)
		},
		Validate: func(_ context.Context, c *batchv1.CronJob) field.ErrorList {
			errs := validateCronJobSpec(&c.Spec, nil)
			// Cron jobs from before the rule may have longer names.
			if len(c.Name) > maxCronJobName {
				errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, fmt.Sprintf("cannot be longer than %d characters", maxCronJobName)))
			}
			return errs
		},
		ValidateUpdate: func(_ context.Context, c, old *batchv1.CronJob) field.ErrorList {
			return validateCronJobSpec(&c.Spec, &old.Spec)
		},
		Table: kind.Table[*batchv1.CronJob]{
			Columns: []kind.Column{
				kind.NameColumn(),
				{Name: "Schedule", Description: "When jobs start, in the form of cron."},
				{Name: "Timezone", Description: "Time zone of the schedule; the controller's if there is none."},
				{Name: "Suspend", Type: "boolean", Description: "Whether no more jobs start."},
				{Name: "Active", Type: "integer", Description: "Jobs that are running."},
				{Name: "Last Schedule", Description: "Time since a job was started."},
				kind.AgeColumn(),
				{Name: "Containers", Priority: 1, Description: "Names of the template's containers."},
				{Name: "Images", Priority: 1, Description: "Images of the template's containers."},
				{Name: "Selector", Priority: 1, Description: "The selector of the jobs' template."},
			},
			Row: cronJobRow,
		},
		Warnings: func(_ context.Context, c, old *batchv1.CronJob) []string {
			var warnings []string
			if old == nil {
				warnings = append(workloads.PodNameWarnings(c.Name), jobWarnings(path, &c.Spec.JobTemplate.Spec, nil)...)
			} else if c.Generation != old.Generation {
				warnings = jobWarnings(path, &c.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec.Template)
			}
			if strings.Contains(c.Spec.Schedule, "TZ") {
				warnings = append(warnings, "spec.schedule: a time zone in the schedule is not supported; spec.timeZone is")
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
	return []any{c.Name, c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, "<none>"), suspend, int64(len(c.Status.Active)), last, kind.Age(c),
		names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector)}
}

// defaultCronJob leaves the jobs' own defaults to the jobs.
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
		workloads.Counter{Field: "startingDeadlineSeconds", Value: ptr.Deref(spec.StartingDeadlineSeconds, 0)},
		workloads.Counter{Field: "successfulJobsHistoryLimit", Value: int64(ptr.Deref(spec.SuccessfulJobsHistoryLimit, 0))},
		workloads.Counter{Field: "failedJobsHistoryLimit", Value: int64(ptr.Deref(spec.FailedJobsHistoryLimit, 0))})...)
	if zone := spec.TimeZone; zone != nil && (old == nil || old.TimeZone == nil || *old.TimeZone != *zone) {
		if err := checkTimeZone(*zone); err != nil {
			errs = append(errs, field.Invalid(path.Child("timeZone"), *zone, err.Error()))
		}
	}
	errs = append(errs, validateOneOf(spec.ConcurrencyPolicy, concurrencyPolicies, path.Child("concurrencyPolicy"))...)

	job, jobPath := &spec.JobTemplate.Spec, path.Child("jobTemplate", "spec")
	opts := podspec.OptionsFor(&job.Template, nil)
	if old != nil {
		opts = podspec.OptionsFor(&job.Template, &old.JobTemplate.Spec.Template)
	}
	errs = append(errs, validateJobSpec(job, jobPath, opts)...)
	if job.Selector != nil {
		errs = append(errs, field.Invalid(jobPath.Child("selector"), job.Selector, "is made for each job"))
	}
	if ptr.Deref(job.ManualSelector, false) {
		errs = append(errs, field.NotSupported(jobPath.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	return errs
}

// validateSchedule refuses a time zone in the schedule, unless the old one had one too.
func validateSchedule(spec, old *batchv1.CronJobSpec, path *field.Path) field.ErrorList {
	if spec.Schedule == "" {
		return field.ErrorList{field.Required(path, "say when jobs start")}
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
		errs = append(errs, field.Invalid(path, spec.Schedule, "has a time zone, which belongs into timeZone"))
	case spec.TimeZone != nil:
		errs = append(errs, field.Invalid(path, spec.Schedule, "has a time zone besides timeZone"))
	}
	return errs
}

func checkSchedule(schedule string) error {
	// The parser panics on a time zone without anything after it.
	if (strings.HasPrefix(schedule, "TZ=") || strings.HasPrefix(schedule, "CRON_TZ=")) && !strings.Contains(schedule, " ") {
		return errors.New("is no more than a time zone")
	}
	_, err := cron.ParseStandard(schedule)
	return err
}

// checkTimeZone wants the name of a time zone; it is the name of a file too, so it must not lead elsewhere.
func checkTimeZone(name string) error {
	if name == "" {
		return errors.New("leave it out rather than empty")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || !timeZonePart.MatchString(part) {
			return errors.New("is no name of a time zone")
		}
	}
	if strings.EqualFold(name, "Local") {
		return errors.New("must say which time zone, not whichever the controller has")
	}
	_, err := time.LoadLocation(name)
	return err
}
