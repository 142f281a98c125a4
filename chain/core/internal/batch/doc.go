// Package batch declares the group batch: jobs and cron jobs.
package batch
