package program

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Network is a network namespace, in which programs can listen on ports that others use elsewhere.
// A nil pointer is the network of this process.
type Network struct {
	calls  chan func()
	closed chan struct{}
	ended  sync.WaitGroup
}

// NewNetwork returns a network of its own, which has a loopback interface and no other. It returns
// an error if this process may not make one.
func NewNetwork() (*Network, error) {
	n := &Network{calls: make(chan func()), closed: make(chan struct{})}
	ready := make(chan error)
	n.ended.Go(func() { n.serve(ready) })
	if err := <-ready; err != nil {
		n.ended.Wait()
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return n, nil
}

// serve makes the calls in a thread of the network.
func (n *Network) serve(ready chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		err = startLoopback()
	}
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case f := <-n.calls:
			f()
		case <-n.closed:
			return
		}
	}
}

// startLoopback starts the loopback interface of the thread's network.
func startLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, loopback); err != nil {
		return err
	}
	loopback.SetUint16(loopback.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback)
}

// Close ends the network for new sockets and processes.
func (n *Network) Close() {
	if n != nil {
		close(n.closed)
		n.ended.Wait()
	}
}

// do calls f in the network: sockets that f opens and processes that f starts belong to it. It
// returns net.ErrClosed after Close.
func (n *Network) do(f func() error) error {
	if n == nil {
		return f()
	}
	result := make(chan error)
	select {
	case n.calls <- func() { result <- f() }:
		return <-result
	case <-n.closed:
		return net.ErrClosed
	}
}

// listen listens on a free port of the network's loopback interface.
func (n *Network) listen() (listener net.Listener, err error) {
	err = n.do(func() error {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	return listener, err
}

// Processors is how long this process and the programs that it has waited for have run, and how
// long the processors of the machine have had nothing to do, both since some time in the past.
type Processors struct{ Running, Idle time.Duration }

// UsedProcessors returns what processors have done until now.
func UsedProcessors() Processors {
	var p Processors
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if unix.Getrusage(who, &used) == nil { // who exists
			p.Running += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if stat, err := fs.Stat(); err == nil {
			p.Idle = time.Duration((stat.CPUTotal.Idle + stat.CPUTotal.Iowait) * float64(time.Second))
		}
	}
	return p
}
