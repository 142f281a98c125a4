package a

import "testing"

func try() error { return nil }

func TestPatient(t *testing.T) {
	var err error
	for range 5 {
		if err = try(); err == nil {
			break // want "one of several attempts"
		}
	}
	for range 5 {
		if try() == nil {
			return // want "one of several attempts"
		}
	}
	t.Error(err)
}

func TestStrict(t *testing.T) {
	for range 5 {
		if err := try(); err != nil {
			t.Error(err)
			return
		}
	}
	for i := range 5 {
		if i == 3 {
			break
		}
	}
}
