package streams

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// spdyFrame is a frame of data, whose flag 1 says that its stream ends.
func spdyFrame(stream, flags byte, data string) string {
	n := len(data)
	return string([]byte{0, 0, 0, stream, flags, byte(n >> 16), byte(n >> 8), byte(n)}) + data
}

// A long SPDY frame of data arrives as many short ones, of which only the last one ends the stream.
// A long frame that is none of data ends the connection.
func TestAttackLongFrames(t *testing.T) {
	t.Parallel()
	const ping = "\x80\x03\x00\x06\x00\x00\x00\x04abcd"
	const settings = "\x80\x03\x00\x04\x00\x10\x00\x00" // of 1 MiB
	long := strings.Repeat("0123456789", 30_000)
	sent := ping + spdyFrame(3, 0, long) + spdyFrame(5, 0, "short") + spdyFrame(3, 1, long) +
		spdyFrame(5, 1, "")
	want := ping
	for _, flag := range []byte{0, 1} {
		data := long
		for len(data) > maxPiece {
			want += spdyFrame(3, 0, data[:maxPiece])
			data = data[maxPiece:]
		}
		want += spdyFrame(3, flag, data)
		want += spdyFrame(5, flag, map[byte]string{0: "short"}[flag])
	}
	for _, read := range []func(io.Reader) io.Reader{
		iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader,
	} {
		got, err := io.ReadAll(&frames{
			in: read(strings.NewReader(sent + settings + ping)), next: spdyFrames(),
		})
		if string(got) != want || !errors.Is(err, errLongFrame) {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
		}
	}
}

// Frames of websockets pass as they are, unless they are long.
func TestAttackLongMessages(t *testing.T) {
	t.Parallel()
	for header, length := range map[string]int{
		"\x82\x05": 5, "\x82\x85mask": 5, "\x82\x7e\x01\x00": 256, "\x82\xfe\x01\x00mask": 256,
		"\x82\xff\x00\x00\x00\x00\x00\x10\x00\x00mask": maxMessage,
		"\x82\xff\x00\x00\x00\x00\x00\x10\x00\x01mask": -1,
		"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffmask": -1,
	} {
		first := "\x89\x00" // a ping
		frame := header + strings.Repeat("x", max(0, length))
		got, err := io.ReadAll(&frames{
			in: iotest.HalfReader(strings.NewReader(first + frame + frame)), next: websocketFrames,
		})
		want := first + frame + frame
		if length < 0 {
			want = first
		}
		if string(got) != want || errors.Is(err, errLongFrame) != (length < 0) {
			t.Errorf("after %q: %d bytes, %v, want %d", header, len(got), err, len(want))
		}
	}
}
