package admission

import "k8s.io/apiserver/pkg/admission"

// Begun is called for each plugin that has been made.
type Begun func()

// Initialize implements admission.PluginInitializer.
func (b Begun) Initialize(admission.Interface) { b() }
