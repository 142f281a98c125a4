package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)[)#]`)

func TestLinksOfDocumentsLeadToFiles(t *testing.T) {
	t.Parallel()
	documents, err := exec.CommandContext(t.Context(), "git", "ls-files", "-co", "--exclude-standard",
		"*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.Lines(string(documents)) {
		document = strings.TrimSpace(document)
		text, err := os.ReadFile(document)
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), match[1])); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
}
