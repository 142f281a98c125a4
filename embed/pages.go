package embed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
)

// The format of bbolt's files. All numbers are in the byte order of the machine.
const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	metaSize    = 64 // without the header of the page

	pageHeaderSize = 16
	elementSize    = 16
	bucketSize     = 16 // in front of a bucket that is stored in its parent's page

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	bucketElement = 0x01

	// noFreelist is the freelist's page in a database that does not store the list.
	noFreelist = math.MaxUint64
	// longFreelist is the count of a freelist whose length is its first entry.
	longFreelist = math.MaxUint16

	minPageSize, maxPageSize = 1 << 10, 16 << 20
	minFileSize              = 4 << 10
	// maxDepth is more than any tree has that fits into a file.
	maxDepth = 64
)

// pages reads a bbolt database that may be damaged. bbolt trusts its files: it maps them into
// memory, where a wrong number leads to a memory fault, often on a goroutine that nothing can
// recover. So everything that bbolt relies on is verified here, before bbolt opens a file. No
// memory is allocated for a number that the size of the file does not justify.
type pages struct {
	r        io.ReaderAt
	size     int64
	pageSize int64
	meta     meta
	used     []uint64 // a bit for each page that is referenced
	spare    []byte   // for the next page, unless it is nil
	visit    func(bucket string, key, value []byte) error
}

// meta is what a meta page says.
type meta struct {
	pageSize, root, freelist, end, transaction uint64
}

// readPages verifies a database and calls visit for each key of each bucket, in the order of the
// keys. Neither the key nor the value must be kept. The error wraps [ErrCorrupt] unless it comes
// from r or visit.
func readPages(r io.ReaderAt, size int64, visit func(bucket string, key, value []byte) error) error {
	p, err := openPages(r, size)
	if err != nil {
		return err
	}
	p.visit = visit
	if err := p.readFreelist(); err != nil {
		return err
	}
	if err := p.readTree(p.meta.root, 0, bounds{}, p.readBucket); err != nil {
		return err
	}
	if p.meta.freelist == noFreelist {
		return nil
	}
	for page := uint64(2); page < p.meta.end; page++ {
		if p.used[page/64]&(1<<(page%64)) == 0 {
			return damaged("page %d is neither in use nor free", page)
		}
	}
	return nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: db: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// openPages verifies the meta pages.
func openPages(r io.ReaderAt, size int64) (*pages, error) {
	if size < minFileSize {
		return nil, damaged("a file of %d bytes is too small", size)
	}
	p := &pages{r: r, size: size}
	first, err := p.firstMeta()
	if err != nil {
		return nil, err
	}
	pageSize := first.pageSize
	if pageSize < minPageSize || pageSize > maxPageSize || pageSize&(pageSize-1) != 0 {
		return nil, damaged("%d bytes is not the size of a page", pageSize)
	}
	p.pageSize = int64(pageSize)
	found := false
	for _, at := range []int64{0, p.pageSize} {
		m, ok, err := p.metaAt(at)
		switch {
		case err != nil:
			return nil, err
		case !ok:
		case m.pageSize != pageSize:
			return nil, damaged("the meta pages differ in the size of a page")
		case !found || m.transaction > p.meta.transaction:
			p.meta, found = m, true
		}
	}
	switch {
	case !found:
		return nil, damaged("neither meta page is valid")
	case p.meta.transaction > math.MaxInt64:
		return nil, damaged("%d is not the number of a transaction", p.meta.transaction)
	case p.meta.end > uint64(size/p.pageSize):
		return nil, damaged("the file is truncated: it has %d of %d pages", size/p.pageSize, p.meta.end)
	}
	p.used = make([]uint64, p.meta.end/64+1)
	return p, nil
}

// firstMeta returns the meta page that decides the size of a page: the first that is valid. Where
// the second begins is not known before.
func (p *pages) firstMeta() (meta, error) {
	for at := int64(0); at <= maxPageSize; at = max(minPageSize, at*2) {
		if at > 0 && at >= p.size-minPageSize {
			break
		}
		if m, ok, err := p.metaAt(at); ok || err != nil {
			return m, err
		}
	}
	return meta{}, damaged("it has no valid meta page")
}

func (p *pages) metaAt(at int64) (m meta, ok bool, err error) {
	b := make([]byte, pageHeaderSize+metaSize)
	if at > p.size-int64(len(b)) {
		return m, false, nil
	}
	if _, err := p.r.ReadAt(b, at); err != nil {
		return m, false, fmt.Errorf("read the database: %w", err)
	}
	b = b[pageHeaderSize:]
	sum := fnv.New64a()
	sum.Write(b[:56])
	m = meta{
		pageSize:    uint64(number32(b[8:])),
		root:        number64(b[16:]),
		freelist:    number64(b[32:]),
		end:         number64(b[40:]),
		transaction: number64(b[48:]),
	}
	return m, number32(b) == metaMagic && number32(b[4:]) == metaVersion &&
		number64(b[56:]) == sum.Sum64(), nil
}

func number16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func number32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func number64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// use marks a page as referenced. Each page has one reference.
func (p *pages) use(page uint64) error {
	if page < 2 || page >= p.meta.end {
		return damaged("page %d does not exist", page)
	}
	word, bit := &p.used[page/64], uint64(1)<<(page%64)
	if *word&bit != 0 {
		return damaged("page %d is referenced twice", page)
	}
	*word |= bit
	return nil
}

// read returns a page with the pages that it continues on.
func (p *pages) read(page uint64) ([]byte, error) {
	if err := p.use(page); err != nil {
		return nil, err
	}
	b := p.spare
	if p.spare = nil; b == nil {
		b = make([]byte, p.pageSize)
	}
	b = b[:p.pageSize]
	if _, err := p.r.ReadAt(b, int64(page)*p.pageSize); err != nil {
		return nil, fmt.Errorf("read the database: %w", err)
	}
	if id := number64(b); id != page {
		return nil, damaged("page %d says that it is page %d", page, id)
	}
	more := uint64(number32(b[12:]))
	if more >= p.meta.end-page {
		return nil, damaged("page %d continues beyond the end", page)
	}
	if more == 0 {
		return b, nil
	}
	for n := range more {
		if err := p.use(page + 1 + n); err != nil {
			return nil, err
		}
	}
	b = append(b, make([]byte, int64(more)*p.pageSize)...)
	if _, err := p.r.ReadAt(b[p.pageSize:], int64(page+1)*p.pageSize); err != nil {
		return nil, fmt.Errorf("read the database: %w", err)
	}
	return b, nil
}

// readFreelist marks the pages that are free.
func (p *pages) readFreelist() error {
	if p.meta.freelist == noFreelist {
		return nil
	}
	b, err := p.read(p.meta.freelist)
	if err != nil {
		return err
	}
	if number16(b[8:]) != freelistPage {
		return damaged("page %d is not the freelist", p.meta.freelist)
	}
	count, ids := uint64(number16(b[10:])), b[pageHeaderSize:]
	if count == longFreelist {
		count, ids = number64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return damaged("the freelist has no room for %d pages", count)
	}
	for n := range count {
		if err := p.use(number64(ids[8*n:])); err != nil {
			return err
		}
	}
	return nil
}

// bounds are the keys between which those of a page lie: the first may occur, the second not. The
// second is nil if there is none.
type bounds struct{ from, to []byte }

// readTree calls leaf for the elements of a tree.
func (p *pages) readTree(page uint64, depth int, within bounds,
	leaf func(flags uint32, key, value []byte) error) error {
	if depth > maxDepth {
		return damaged("page %d is too deep in its tree", page)
	}
	b, err := p.read(page)
	if err != nil {
		return err
	}
	defer func() { p.spare = b }()
	switch kind := number16(b[8:]); kind {
	case leafPage:
		return readLeaf(b, within, leaf)
	case branchPage:
		return p.readBranch(b, depth, within, leaf)
	default:
		return damaged("page %d has the unknown type %d", page, kind)
	}
}

func (p *pages) readBranch(b []byte, depth int, within bounds,
	leaf func(flags uint32, key, value []byte) error) error {
	e, err := newElements(b, within)
	if err != nil {
		return err
	}
	if e.count == 0 {
		return damaged("page %d is empty", number64(b))
	}
	keys := make([][]byte, e.count, e.count+1)
	for n := range keys {
		at := e.at(n)
		if keys[n], _, err = e.next(n, number32(at), number32(at[4:]), 0); err != nil {
			return err
		}
	}
	keys = append(keys, within.to)
	for n := range e.count {
		child := number64(e.at(n)[8:])
		if err := p.readTree(child, depth+1, bounds{keys[n], keys[n+1]}, leaf); err != nil {
			return err
		}
	}
	return nil
}

// readLeaf calls leaf for the elements of a page, which may be one inside another page.
func readLeaf(b []byte, within bounds, leaf func(flags uint32, key, value []byte) error) error {
	e, err := newElements(b, within)
	if err != nil {
		return err
	}
	for n := range e.count {
		at := e.at(n)
		key, value, err := e.next(n, number32(at[4:]), number32(at[8:]), number32(at[12:]))
		if err != nil {
			return err
		}
		if err := leaf(number32(at), key, value); err != nil {
			return err
		}
	}
	return nil
}

// elements takes the keys and values out of a page. They follow the table of the elements, in its
// order, and do not overlap: otherwise a small file could hold any amount of data.
type elements struct {
	page     []byte
	count    int
	within   bounds
	previous []byte
	end      uint64 // of the data that was read
}

func newElements(page []byte, within bounds) (*elements, error) {
	e := &elements{page: page, count: int(number16(page[10:])), within: within}
	end := pageHeaderSize + elementSize*e.count
	if end > len(page) {
		return nil, damaged("page %d has no room for %d elements", number64(page), e.count)
	}
	e.end = uint64(end)
	return e, nil
}

func (e *elements) at(n int) []byte { return e.page[pageHeaderSize+elementSize*n:] }

// next returns the key and the value of element n. offset is that from the element to the key.
func (e *elements) next(n int, offset, keySize, valueSize uint32) (key, value []byte, err error) {
	from := pageHeaderSize + elementSize*uint64(n) + uint64(offset)
	middle := from + uint64(keySize)
	to := middle + uint64(valueSize)
	if from < e.end || to > uint64(len(e.page)) || keySize == 0 {
		return nil, nil, damaged("page %d: element %d is not inside the page", number64(e.page), n)
	}
	key, value = e.page[from:middle:middle], e.page[middle:to:to]
	if n > 0 && bytes.Compare(e.previous, key) >= 0 || bytes.Compare(key, e.within.from) < 0 ||
		e.within.to != nil && bytes.Compare(key, e.within.to) >= 0 {
		return nil, nil, damaged("page %d: keys are out of order", number64(e.page))
	}
	e.previous, e.end = key, to
	return key, value, nil
}

// readBucket reads an element of the root, which only has buckets. etcd does not nest them.
func (p *pages) readBucket(flags uint32, name, value []byte) error {
	if flags&bucketElement == 0 || len(value) < bucketSize {
		return damaged("%q is not a bucket", name)
	}
	each := func(flags uint32, key, value []byte) error {
		if flags&bucketElement != 0 {
			return damaged("a bucket inside the bucket %q", name)
		}
		return p.visit(string(name), key, value)
	}
	if root := number64(value); root != 0 {
		return p.readTree(root, 0, bounds{}, each)
	}
	inside := value[bucketSize:]
	if len(inside) < pageHeaderSize || number16(inside[8:]) != leafPage {
		return damaged("the bucket %q has no page", name)
	}
	return readLeaf(inside, bounds{}, each)
}
