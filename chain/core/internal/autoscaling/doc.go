// Package autoscaling declares the group autoscaling: horizontal pod autoscalers, stored as v2 and served as v1 too.
package autoscaling
