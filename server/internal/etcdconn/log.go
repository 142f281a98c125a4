package etcdconn

import (
	"errors"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger returns a zap logger for etcd that writes to log.
func newLogger(log logr.Logger) *zap.Logger {
	if log.IsZero() {
		return zap.NewNop()
	}
	return zap.New(logCore{log: log.WithName("etcd")})
}

// logCore writes the entries of a zap logger to a logr logger.
type logCore struct {
	log    logr.Logger
	fields []zapcore.Field
}

// The verbosity of messages that are neither warnings nor errors, by the conventions for klog's -v.
const (
	infoVerbosity  = 2
	debugVerbosity = 4
)

func verbosity(level zapcore.Level) int {
	switch {
	case level <= zapcore.DebugLevel:
		return debugVerbosity
	case level == zapcore.InfoLevel:
		return infoVerbosity
	default:
		return 0
	}
}

func (c logCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.ErrorLevel || c.log.V(verbosity(level)).Enabled()
}

func (c logCore) With(fields []zapcore.Field) zapcore.Core {
	return logCore{c.log, slices.Concat(c.fields, fields)}
}

func (c logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	var cause error
	for _, f := range slices.Concat(c.fields, fields) {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			cause = errors.Join(cause, err)
			continue
		}
		f.AddTo(values)
	}
	var pairs []any
	for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
		pairs = append(pairs, key, values.Fields[key])
	}
	if entry.Level >= zapcore.ErrorLevel {
		c.log.Error(cause, entry.Message, pairs...)
		return nil
	}
	if cause != nil {
		pairs = append(pairs, "err", cause)
	}
	c.log.V(verbosity(entry.Level)).Info(entry.Message, pairs...)
	return nil
}

func (c logCore) Sync() error { return nil }
