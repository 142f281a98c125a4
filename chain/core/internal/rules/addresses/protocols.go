package addresses

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Protocol validates a port's protocol. There is no default: an empty value is invalid.
func Protocol(path *field.Path, value corev1.Protocol) field.ErrorList {
	switch value {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, []corev1.Protocol{
		corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP,
	})}
}
