// Package batch declares the API group batch: jobs and cron jobs.
package batch
