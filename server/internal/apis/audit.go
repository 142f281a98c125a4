package apis

import (
	flowcontrol "k8s.io/api/flowcontrol/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// applyAudit configures where audit events go: to the backends of Config.Audit and to
// Config.AuditBackend. All of them share one policy.
func (c *Config) applyAudit(generic *genericapiserver.Config) error {
	if err := c.Audit.ApplyTo(generic); err != nil {
		return err
	}
	if c.AuditBackend == nil {
		return nil
	}
	if generic.AuditPolicyRuleEvaluator == nil {
		generic.AuditPolicyRuleEvaluator = policy.NewPolicyRuleEvaluator(defaultAuditPolicy())
	}
	if generic.AuditBackend == nil {
		generic.AuditBackend = c.AuditBackend
	} else {
		generic.AuditBackend = audit.Union(generic.AuditBackend, c.AuditBackend)
	}
	return nil
}

// defaultAuditPolicy is the policy without a policy file. The control plane reads its own objects
// and maintains the status of flow schemas all the time, which says nothing about its clients.
func defaultAuditPolicy() *auditinternal.Policy {
	return &auditinternal.Policy{
		OmitStages: []auditinternal.Stage{
			auditinternal.StageRequestReceived, auditinternal.StageResponseStarted,
		},
		Rules: []auditinternal.PolicyRule{
			{
				Level: auditinternal.LevelNone, Users: []string{user.APIServerUser},
				Verbs: []string{"get", "list", "watch"},
			},
			{
				Level: auditinternal.LevelNone, Users: []string{user.APIServerUser},
				Resources: []auditinternal.GroupResources{{Group: flowcontrol.GroupName}},
			},
			{Level: auditinternal.LevelMetadata},
		},
	}
}
