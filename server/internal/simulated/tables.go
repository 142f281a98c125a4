package simulated

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kinproc/kinproc/chain/documents"
)

const (
	// maxKeptTables is how much the decoded tables take that are kept, in bytes.
	maxKeptTables = 8 << 20
	// commandSize is what a command takes besides its text, and more than a table does.
	commandSize = 256
)

// tables are the decoded tables of commands that were asked for last. To decode one takes up to
// three hundred times its size, so one is decoded at a time, and everybody who asks for the same
// gets the same, also if it is a refusal.
type tables struct {
	mu   sync.Mutex
	kept []keptTable // guarded by mu; the one used last is at the end
	size int         // guarded by mu; of what is kept, in bytes
}

// keptTable is what the data of a ConfigMap says. It is found by what the ConfigMap says, not by
// its resource version, which can have said something else before a reset.
type keptTable struct {
	digest [sha256.Size]byte
	table  commands
	err    error
	size   int
}

// of returns the table in the data of a ConfigMap. The error is the end of a sentence about the
// ConfigMap, unless ctx has ended.
func (t *tables) of(ctx context.Context, data map[string]string) (commands, error) {
	digest := digestOf(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := context.Cause(ctx); err != nil { // while others decoded
		return nil, err
	}
	found := slices.IndexFunc(t.kept, func(k keptTable) bool { return k.digest == digest })
	if found >= 0 {
		k := t.kept[found]
		t.kept = append(slices.Delete(t.kept, found, found+1), k)
		return k.table, k.err
	}
	k := keptTable{digest: digest}
	if k.table, k.err = decodeCommands(data); k.err != nil {
		k.size = len(k.err.Error())
	}
	k.size += commandSize + k.table.size()
	t.kept, t.size = append(t.kept, k), t.size+k.size
	for t.size > maxKeptTables {
		t.size -= t.kept[0].size
		t.kept = slices.Delete(t.kept, 0, 1)
	}
	return k.table, k.err
}

func digestOf(data map[string]string) (digest [sha256.Size]byte) {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, text := range []string{key, data[key]} {
			_ = binary.Write(h, binary.LittleEndian, int64(len(text))) // to a hash, which never fails
			_, _ = h.Write([]byte(text))
		}
	}
	h.Sum(digest[:0])
	return digest
}

// decodeCommands decodes the tables in the data of a ConfigMap. The result takes hardly more than
// the data, since a text that aliases repeat is kept once.
func decodeCommands(data map[string]string) (commands, error) {
	tooMany := fmt.Errorf("has more than %d commands", maxCommands)
	if len(data) > maxCommands {
		return nil, tooMany
	}
	var table commands
	texts := map[string]string{}
	once := func(text *string) {
		if _, ok := texts[*text]; !ok {
			texts[*text] = *text
		}
		*text = texts[*text]
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		text := []byte(data[key])
		if err := documents.Check(text, documents.MaxSize); err != nil {
			return nil, undecodable(key, err)
		}
		if len(table)+items(data[key]) > maxCommands { // which decoding would find out at a cost
			return nil, tooMany
		}
		var list commands
		if err := documents.DecodeStrict(text, &list); err != nil {
			return nil, undecodable(key, err)
		}
		if len(table)+len(list) > maxCommands {
			return nil, tooMany
		}
		for i := range list {
			c := &list[i]
			c.Command = unquote(c.Command)
			if c.Command == "" || c.Delay.Duration < 0 || c.Delay.Duration > maxCommandDelay {
				return nil, fmt.Errorf("has at %q a command without a name, or with a delay that is not "+
					"from 0 to %s", key, maxCommandDelay)
			}
			once(&c.Command)
			once(&c.Stdout)
			once(&c.Stderr)
		}
		table = append(table, list...)
	}
	return table, nil
}

func undecodable(key string, err error) error {
	var tooLarge *documents.TooLargeError
	if errors.As(err, &tooLarge) {
		return fmt.Errorf("has at %q a table that is too large: %w", key, err)
	}
	return fmt.Errorf("has at %q no list with command, stdout, stderr, exit and delay: %s",
		key, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "))
}

// items returns how many items a YAML list with lines that begin with a dash has. It does not look
// at lists in brackets. What is in the items is to the right of the dashes.
func items(text string) int {
	count, left := 0, -1
	for line := range strings.Lines(text) {
		item := strings.TrimLeft(line, " ")
		if !strings.HasPrefix(item, "-") || len(item) > 1 && !strings.Contains(" \t\r\n", item[1:2]) {
			continue
		}
		if left < 0 {
			left = len(line) - len(item)
		}
		if left == len(line)-len(item) {
			count++
		}
	}
	return count
}

// size returns what a table takes, in bytes. It counts equal texts once.
func (t commands) size() int {
	size, counted := 0, map[string]bool{}
	for _, c := range t {
		size += commandSize
		for _, text := range []string{c.Command, c.Stdout, c.Stderr} {
			if !counted[text] {
				counted[text], size = true, size+len(text)
			}
		}
	}
	return size
}
