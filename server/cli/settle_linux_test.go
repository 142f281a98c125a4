package cli

import (
	"slices"
	"testing"
)

func TestReadOnlyMappings(t *testing.T) {
	t.Parallel()
	const maps = `00400000-03454000 r-xp 00000000 fe:00 1234                               /bin/it
03454000-06f08000 r--p 03054000 fe:00 1234                               /bin/it
06f09000-07000000 rw-p 06b09000 fe:00 1234                               /bin/it
7f0000000000-7f0000001000 r-xp 00000000 fe:00 77                         /lib/not/bin/it
c000000000-c004000000 rw-p 00000000 00:00 0
`
	want := []mapping{{0x400000, 0x3454000}, {0x3454000, 0x6f08000}}
	if got := readOnly([]byte(maps), "/bin/it"); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if len(readOnly(nil, "/bin/it")) != 0 {
		t.Error("got mappings from empty input")
	}
}
