package conformance_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/conformance/internal/exchanges"
)

var recordedServer = flag.String("record", "",
	"kubeconfig of a kube-apiserver whose answers TestAnswersAsKubeAPIServer records; "+
		"docs/upgrading.md says how to start it")

// record sends the recorded requests to a kube-apiserver that has just started, and writes what it
// answers into testdata. It logs what differs from what was recorded before. If the server emulates
// an earlier version, the folder of that version in testdata gets the recordings that differ.
func record(t *testing.T, recordings []*exchanges.Recording) {
	t.Helper()
	target := targetOf(t, *recordedServer)
	if target.Token == "" {
		t.Fatalf("%s has no token: with a client certificate, requests of other users would be "+
			"answered as those of its user", *recordedServer)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *recordedServer)
	if err != nil {
		t.Fatal(err)
	}
	version, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.EmulationMinor != version.Minor {
		recordEmulated(t, recordings, target, version)
		return
	}
	// The recordings create custom resources, whose documents are not compared.
	v2, v3 := openAPIFacts(t, config)
	for _, line := range v2.differences(v3) {
		t.Errorf("OpenAPI v3 says something else than v2: %s", line)
	}
	v2.record(t, openAPIRecording)
	for _, r := range recordings {
		differences, err := r.Record(t.Context(), target)
		for _, d := range differences {
			t.Log(d)
			if outOfTime(d) {
				t.Errorf("%s/%s took longer than a second: start another server, and record again",
					d.File, d.Case)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		server := "kube-apiserver " + version.GitVersion
		if len(differences) == 0 && r.Server == server {
			continue
		}
		r.Server = server
		if err := r.Save("testdata"); err != nil {
			t.Fatal(err)
		}
	}
}

func recordEmulated(
	t *testing.T, recordings []*exchanges.Recording, target exchanges.Target, v *version.Info,
) {
	t.Helper()
	emulated := v.EmulationMajor + "." + v.EmulationMinor
	dir := filepath.Join("testdata", emulated)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, r := range recordings {
		differences, err := r.Record(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		late := slices.IndexFunc(differences, outOfTime)
		if late >= 0 {
			t.Errorf("%s/%s took longer than a second: start another server, and record again",
				r.Name, differences[late].Case)
		}
		if len(differences) == 0 {
			continue
		}
		t.Logf("%s: %d answers differ", r.Name, len(differences))
		r.Server = "kube-apiserver " + v.GitVersion + " as " + emulated
		if err := r.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
}
