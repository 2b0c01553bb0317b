package zklock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// pieces is a connection on which at most a number of bytes come at a time.
type pieces struct {
	net.Conn
	in  *bytes.Reader
	max int
	out bytes.Buffer
}

func (p *pieces) Read(b []byte) (int, error)  { return p.in.Read(b[:min(p.max, len(b))]) }
func (p *pieces) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p *pieces) Close() error                { return nil }

func newTestLink(in []byte, most int) (*link, *pieces) {
	p := &pieces{in: bytes.NewReader(in), max: most}
	return &link{Conn: p, client: &client{epoch: time.Now()}, zxidBefore: 77}, p
}

// message returns a message of ZooKeeper's, with its length.
func message(fields ...any) []byte {
	var b bytes.Buffer
	for _, f := range fields {
		_ = binary.Write(&b, binary.BigEndian, f) // to memory
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(b.Len())), b.Bytes()...)
}

func greeting(timeout int32) []byte {
	return message(int32(0), timeout, int64(0x1234), int32(16), make([]byte, 16))
}

func reply(xid int32, zxid int64, body string) []byte {
	return message(xid, zxid, int32(0), []byte(body))
}

func TestTheLibraryGetsNoNumbersOfTransactions(t *testing.T) {
	const event = -1
	in := bytes.Join([][]byte{greeting(6000), reply(1, 5, ""), reply(event, -1, "a watch"), reply(2, 9, "data"), reply(3, 0, "")}, nil)
	want := bytes.Join([][]byte{greeting(6000), reply(1, 0, ""), reply(event, 0, "a watch"), reply(2, 0, "data"), reply(3, 0, "")}, nil)
	for _, most := range []int{1, 3, 4, 5, 16, 17, 1000} {
		l, _ := newTestLink(in, most)
		got, err := io.ReadAll(l)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes at a time: read\n%x, %v, want\n%x", most, got, err, want)
		}
		if zxid := l.client.zxid.Load(); zxid != 9 {
			t.Errorf("%d bytes at a time: the latest transaction is %d, want 9", most, zxid)
		}
		if granted := l.client.granted.Load(); granted != int64(6*time.Second) {
			t.Errorf("%d bytes at a time: granted %v", most, time.Duration(granted))
		}
	}
}

func TestRequestsNameTheTransactionSeenBeforeTheConnection(t *testing.T) {
	greet := func(since, session int64) []byte {
		return message(int32(0), since, int32(6000), session, int32(16), make([]byte, 16))
	}
	watches := func(since int64) []byte {
		return message(int32(8), int32(opSetWatches), since, int32(0), int32(0), int32(0))
	}
	get := message(int32(9), int32(4), int32(2), []byte("/k"), false)
	for name, c := range map[string]struct {
		up         bool
		sent, want []byte
	}{
		"a new session":          {false, greet(0, 0), greet(0, 0)},
		"the same session again": {false, greet(0, 5), greet(77, 5)},
		"watches":                {true, watches(0), watches(77)},
		"another request":        {true, get, get},
		"a ping":                 {true, message(int32(-2), int32(11)), message(int32(-2), int32(11))},
	} {
		l, p := newTestLink(nil, 1)
		l.up.Store(c.up)
		l.client.zxid.Store(99) // seen on this connection
		sent := bytes.Clone(c.sent)
		if _, err := l.Write(sent); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(p.out.Bytes(), c.want) {
			t.Errorf("%s: wrote\n%x, want\n%x", name, p.out.Bytes(), c.want)
		}
		if !bytes.Equal(sent, c.sent) {
			t.Errorf("%s: the library's buffer was changed", name)
		}
	}
}

func TestWhatIsNotZooKeepersIsGivenUp(t *testing.T) {
	for name, in := range map[string][]byte{
		"another protocol": []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an empty message": append(greeting(6000), 0, 0, 0, 0),
		"a short message":  append(greeting(6000), message(int32(1), int32(2))...),
		"a length below 0": append(greeting(6000), 0xff, 0xff, 0xff, 0xff),
	} {
		l, _ := newTestLink(in, 1000)
		if _, err := io.ReadAll(l); !errors.Is(err, errNotZooKeeper) {
			t.Errorf("%s: read with error %v", name, err)
		}
	}
}

// FuzzScan compares what is read byte by byte with what is read at once.
func FuzzScan(f *testing.F) {
	f.Add(append(greeting(6000), reply(1, 5, "data")...))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		slow, _ := newTestLink(in, 1)
		fast, _ := newTestLink(in, len(in)+1)
		a, errA := io.ReadAll(slow)
		b, errB := io.ReadAll(fast)
		if (errA == nil) != (errB == nil) {
			t.Fatalf("errors %v and %v", errA, errB)
		}
		if errA == nil && (!bytes.Equal(a, b) || slow.client.zxid.Load() != fast.client.zxid.Load()) {
			t.Fatalf("read %x and %x", a, b)
		}
	})
}
