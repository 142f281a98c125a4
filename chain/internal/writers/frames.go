package writers

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kinproc/kinproc/chain/history"
)

// A file is a sequence of frames, each with what has been noted in about a second:
//
//	the length of what follows the checksum (4 bytes), its CRC-32C (4 bytes),
//	the start of the process, which is a revision and a time, the number of writers, the writers,
//	and records up to the end of the frame
//
// A writer is six texts with their lengths. A record is the revision, the time, the number of its
// writer, and the sum of what was written (4 bytes). Numbers are varints unless a size is given.

// frameBytes is the size from which on a frame takes no more records, and half of what one has at
// most.
const frameBytes = 64 << 10

// headBytes are those of the length and the checksum.
const headBytes = 8

// start is the start of a process: the revision of etcd, and the time.
type start struct{ revision, at int64 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// texts returns the texts of a writer, in the order of the file.
func texts(w *history.Writer) [6]*string {
	return [...]*string{
		&w.User, &w.Impersonator, &w.UserAgent, &w.Verb, &w.Subresource, &w.Manager,
	}
}

// encode returns a frame with the first records, and the others.
func encode(from start, records []record) (frame []byte, rest []record) {
	var who, what []byte
	known := map[*history.Writer]uint64{}
	for len(records) > 0 && len(who)+len(what) < frameBytes {
		r := records[0]
		records = records[1:]
		number, ok := known[r.who]
		if !ok {
			number = uint64(len(known))
			known[r.who] = number
			for _, text := range texts(r.who) {
				who = append(binary.AppendUvarint(who, uint64(len(*text))), *text...)
			}
		}
		what = binary.AppendUvarint(what, uint64(r.revision))
		what = binary.AppendUvarint(what, uint64(r.at))
		what = binary.AppendUvarint(what, number)
		what = binary.LittleEndian.AppendUint32(what, r.sum)
	}
	frame = binary.AppendUvarint(make([]byte, headBytes), uint64(from.revision))
	frame = binary.AppendUvarint(frame, uint64(from.at))
	frame = binary.AppendUvarint(frame, uint64(len(known)))
	frame = append(append(frame, who...), what...)
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-headBytes))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[headBytes:], castagnoli))
	return frame, records
}

// decode calls report for each frame of a file, and returns the size of all that are whole. What
// follows them is torn: the process was killed while it wrote.
func decode(data []byte, report func(from start, records []record)) (size int64) {
	for len(data) >= headBytes {
		length := int64(binary.LittleEndian.Uint32(data))
		if length > 2*frameBytes || length > int64(len(data)-headBytes) {
			break
		}
		content := data[headBytes : headBytes+length]
		if crc32.Checksum(content, castagnoli) != binary.LittleEndian.Uint32(data[4:]) {
			break
		}
		from, records, ok := decodeFrame(content)
		if !ok {
			break
		}
		report(from, records)
		data, size = data[headBytes+length:], size+headBytes+length
	}
	return size
}

func decodeFrame(data []byte) (from start, records []record, ok bool) {
	in := input{data: data}
	from.revision, from.at = int64(in.number()), int64(in.number())
	var writers []*history.Writer
	for n := in.number(); n > 0 && !in.torn; n-- {
		w, good := &history.Writer{}, true
		for _, text := range texts(w) {
			*text = in.text()
			good = good && plausible(*text)
		}
		if !good {
			w = nil
		}
		writers = append(writers, w)
	}
	for len(in.data) > 0 {
		r := record{revision: int64(in.number()), at: int64(in.number())}
		writer := in.number()
		r.sum = in.sum()
		switch {
		case in.torn || writer >= uint64(len(writers)):
			return start{}, nil, false
		case r.revision > 0 && r.sum != 0 && writers[writer] != nil:
			r.who = writers[writer]
			records = append(records, r)
		}
	}
	return from, records, !in.torn
}

// plausible reports whether a text may be shown on a terminal. What was not written by kinproc
// might have control characters.
func plausible(text string) bool {
	return len(text) <= maxText && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// input reads the content of a frame.
type input struct {
	data []byte
	torn bool
}

func (in *input) number() uint64 {
	number, n := binary.Uvarint(in.data)
	if n <= 0 {
		in.torn, in.data = true, nil
		return 0
	}
	in.data = in.data[n:]
	return number
}

func (in *input) text() string {
	length := in.number()
	if length > uint64(len(in.data)) {
		in.torn, in.data = true, nil
		return ""
	}
	text := string(in.data[:length])
	in.data = in.data[length:]
	return text
}

func (in *input) sum() uint32 {
	if len(in.data) < 4 {
		in.torn, in.data = true, nil
		return 0
	}
	sum := binary.LittleEndian.Uint32(in.data)
	in.data = in.data[4:]
	return sum
}
