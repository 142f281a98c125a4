package servertest

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/util"
	netutils "k8s.io/utils/net"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// module is a module that much of this program imports, in the version that kinproc requires.
type module struct {
	path, version string
	function      any // one of the module
}

// modules returns the modules of which another version makes Go compile most of this program anew.
// The build information of a test has no modules, so functions tell their versions. A test keeps
// the versions those of go.mod.
func modules() []module {
	return []module{
		{"k8s.io/api", "v0.37.2", corev1.Resource},
		{"k8s.io/apimachinery", "v0.37.2", validation.IsDNS1123Label},
		{"k8s.io/client-go", "v0.37.2", rest.CopyConfig},
		{"k8s.io/klog/v2", "v2.140.0", klog.InitFlags},
		{"k8s.io/kube-openapi", "v0.0.0-20260721132016-d427ff9ee9ad", util.ToCanonicalName},
		{"k8s.io/utils", "v0.0.0-20260626114624-be93311217bd", netutils.IPFamilyOf},
		{"sigs.k8s.io/structured-merge-diff/v6", "v6.4.2", fieldpath.MakePath},
	}
}

// built returns the version of a module in this program, which is in the path of its source. It is
// empty if the module is vendored, or replaced by a folder.
func (m module) built() string {
	f := runtime.FuncForPC(reflect.ValueOf(m.function).Pointer())
	file, _ := f.FileLine(f.Entry())
	_, rest, _ := strings.Cut("/"+file, "/"+m.path+"@")
	version, _, _ := strings.Cut(rest, "/")
	return version
}

// otherVersions returns what to say if modules of this program have other versions than kinproc
// requires, or nothing.
func otherVersions(all []module) string {
	var has, get []string
	for _, m := range all {
		if built := m.built(); built != "" && built != m.version {
			has = append(has, m.path+" "+built)
			get = append(get, m.path+"@"+m.version)
		}
	}
	if len(has) == 0 {
		return ""
	}
	return fmt.Sprintf("servertest: this test is built with %s, so that Go has compiled much of "+
		"kinproc again, which takes minutes; to share what is compiled, take the versions of "+
		"kinproc if nothing needs newer ones: go get %s && go mod tidy", strings.Join(has, ", "),
		strings.Join(get, " "))
}

// versionsTold is done once the first test of the process has been told.
var versionsTold sync.Once

// tellVersions tells the first test of the process of other versions, if it has a log. That is
// printed if the test fails or is verbose: who has chosen the versions need not read it each time.
func tellVersions(t TB) {
	t.Helper()
	versionsTold.Do(func() {
		t.Helper()
		log, ok := t.(interface{ Logf(string, ...any) })
		if text := otherVersions(modules()); ok && text != "" {
			log.Logf("%s", text)
		}
	})
}
