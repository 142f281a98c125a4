// Package autoscaling declares the API group autoscaling: horizontal pod autoscalers, which are
// stored as v2 and also served as v1.
package autoscaling
