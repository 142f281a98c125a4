package etcdconn

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/zap"
)

func TestLogger(t *testing.T) {
	t.Parallel()
	var lines []string
	log := funcr.New(func(prefix, args string) {
		lines = append(lines, prefix+": "+args)
	}, funcr.Options{Verbosity: 2})
	lg := newLogger(log).With(zap.String("member", "a"))
	lg.Debug("applied")
	lg.Info("elected", zap.Int("term", 2))
	lg.Warn("slow", zap.Error(errors.New("disk")))
	lg.Error("stuck", zap.Error(errors.New("disk full")))
	want := []string{
		`etcd: "level"=2 "msg"="elected" "member"="a" "term"=2`,
		`etcd: "level"=0 "msg"="slow" "member"="a" "err"="disk"`,
		`etcd: "msg"="stuck" "error"="disk full" "member"="a"`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got:\n%s", strings.Join(lines, "\n"))
	}
	if newLogger(logr.Logger{}).Core().Enabled(zap.ErrorLevel) {
		t.Error("a zero logger logs errors")
	}
}
