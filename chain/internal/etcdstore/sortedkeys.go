package etcdstore

import (
	"slices"
	"sort"
)

// sortedKeys is a set of keys in their order, which knows how many come before a key. It keeps the
// keys in slices of some hundred each, so that an insertion moves few of them.
type sortedKeys struct {
	chunks [][]string // none is empty
	length int
}

// chunkLength is the number of keys from which on a slice is split.
const chunkLength = 1024

// find returns the place of a key, or where to insert it.
func (s *sortedKeys) find(key string) (chunk, at int, found bool) {
	// the last chunk that begins at the key or before
	chunk = max(0, sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i][0] > key })-1)
	if chunk < len(s.chunks) {
		at, found = slices.BinarySearch(s.chunks[chunk], key)
	}
	return chunk, at, found
}

// insert adds a key, and reports whether it is new.
func (s *sortedKeys) insert(key string) bool {
	chunk, at, found := s.find(key)
	if found {
		return false
	}
	s.length++
	if len(s.chunks) == 0 {
		s.chunks = [][]string{{key}}
		return true
	}
	keys := slices.Insert(s.chunks[chunk], at, key)
	s.chunks[chunk] = keys
	if len(keys) > chunkLength {
		half := len(keys) / 2
		s.chunks[chunk] = slices.Clone(keys[:half])
		s.chunks = slices.Insert(s.chunks, chunk+1, slices.Clone(keys[half:]))
	}
	return true
}

// remove removes a key, and reports whether it was there.
func (s *sortedKeys) remove(key string) bool {
	chunk, at, found := s.find(key)
	if !found {
		return false
	}
	s.length--
	s.chunks[chunk] = slices.Delete(s.chunks[chunk], at, at+1)
	if len(s.chunks[chunk]) == 0 {
		s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
	}
	return true
}

// rank returns the number of keys before a key.
func (s *sortedKeys) rank(key string) int {
	chunk, rank, _ := s.find(key)
	for _, keys := range s.chunks[:min(chunk, len(s.chunks))] {
		rank += len(keys)
	}
	return rank
}

// at returns the key before which there are rank others, or "" if there is none.
func (s *sortedKeys) at(rank int) string {
	for _, keys := range s.chunks {
		if rank < len(keys) {
			return keys[rank]
		}
		rank -= len(keys)
	}
	return ""
}
