package apps

import (
	"testing"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func FuzzDeployment(f *testing.F) {
	kindtest.Fuzz(f, Deployments(),
		`{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		`{"spec":{"replicas":-1,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"0%","maxUnavailable":0}},"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}}`,
		`{"spec":{"strategy":{"type":"Recreate","rollingUpdate":{}},"minReadySeconds":5,"progressDeadlineSeconds":5,"revisionHistoryLimit":-1,"template":{"spec":{"initContainers":[{"name":"c","restartPolicy":"Always"}],"volumes":[{"name":"v"}]}}}}`)
}

func FuzzStatefulSet(f *testing.F) {
	kindtest.Fuzz(f, StatefulSets(),
		`{"metadata":{"name":"s"},"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}},
		"volumeClaimTemplates":[{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`,
		`{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":-1,"maxUnavailable":"x%"}},"ordinals":{"start":-1},"persistentVolumeClaimRetentionPolicy":{}}}`)
}
