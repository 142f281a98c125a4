package streams

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
)

// The libraries read a frame as a whole, and keep many that nobody has read. So what a client sends
// passes through here first.
const (
	// maxPiece is how long a SPDY frame of data is, at most, when the library sees it. It queues up
	// to
	// 250. Longer ones are divided: clients send what they have to send in one frame.
	maxPiece = 2 << 10
	// maxControl bounds other SPDY frames. Their headers, which are compressed, are some short
	// words.
	maxControl = 1 << 10
	// maxMessage bounds a frame of a websocket. Clients send 32 KiB in one.
	maxMessage = 1 << 20
)

// errLongFrame ends a connection.
var errLongFrame = errors.New("the frame is too long")

// bounded returns a response whose connection, once it is hijacked, has its input divided into
// frames by next.
func bounded(
	w http.ResponseWriter, next func(io.Reader) (header []byte, payload int64, err error),
) http.ResponseWriter {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return w // the library says that it cannot be hijacked
	}
	return boundedWriter{w, hijacker, next}
}

type boundedWriter struct {
	http.ResponseWriter
	hijacker http.Hijacker
	next     func(io.Reader) ([]byte, int64, error)
}

// Hijack implements http.Hijacker.
func (b boundedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := b.hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(&frames{in: buffers.Reader, next: b.next})
	return conn, bufio.NewReadWriter(in, buffers.Writer), nil
}

// frames reads frames.
type frames struct {
	in io.Reader
	// next reads the header of a frame. It returns what to read in its place, and how long the
	// payload is that follows.
	next    func(io.Reader) (header []byte, payload int64, err error)
	header  []byte
	payload int64
}

// Read implements io.Reader.
func (f *frames) Read(to []byte) (n int, err error) {
	if len(f.header) == 0 && f.payload == 0 {
		if f.header, f.payload, err = f.next(f.in); err != nil {
			return 0, err
		}
	}
	if len(f.header) > 0 {
		n = copy(to, f.header)
		f.header = f.header[n:]
		return n, nil
	}
	n, err = f.in.Read(to[:min(int64(len(to)), f.payload)])
	f.payload -= int64(n)
	return n, err
}

// spdyFrames divides SPDY frames of data. The first bit of a frame says that it is another one.
func spdyFrames() func(io.Reader) ([]byte, int64, error) {
	var header [8]byte // the stream, flags, and the length in three bytes
	left := 0          // of the data
	return func(in io.Reader) ([]byte, int64, error) {
		if left == 0 {
			if _, err := io.ReadFull(in, header[:]); err != nil {
				return nil, 0, err
			}
			left = int(binary.BigEndian.Uint32(header[4:]) & 0xffffff)
			if header[0]&0x80 != 0 {
				length := left
				if left = 0; length > maxControl {
					return nil, 0, errLongFrame
				}
				return header[:], int64(length), nil
			}
		}
		length := min(left, maxPiece)
		left -= length
		piece := header
		binary.BigEndian.PutUint32(piece[4:], uint32(length))
		if left == 0 {
			piece[4] = header[4] // the last one may end the stream
		}
		return piece[:], int64(length), nil
	}
}

// websocketFrames refuses long frames of a websocket. The second byte of a frame has a short
// length, or which longer number follows, and whether the payload has a mask.
func websocketFrames(in io.Reader) (header []byte, payload int64, err error) {
	header = make([]byte, 2, 14)
	if _, err := io.ReadFull(in, header); err != nil {
		return nil, 0, err
	}
	short, more := header[1]&0x7f, 0
	switch short {
	case 126:
		more = 2
	case 127:
		more = 8
	}
	mask := 0
	if header[1]&0x80 != 0 {
		mask = 4
	}
	header = header[:2+more+mask]
	if _, err := io.ReadFull(in, header[2:]); err != nil {
		return nil, 0, err
	}
	length := uint64(short)
	switch more {
	case 2:
		length = uint64(binary.BigEndian.Uint16(header[2:]))
	case 8:
		length = binary.BigEndian.Uint64(header[2:])
	}
	if length > maxMessage {
		return nil, 0, errLongFrame
	}
	return header, int64(length), nil
}
