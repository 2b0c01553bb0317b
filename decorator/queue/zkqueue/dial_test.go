package zkqueue

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// message is one of the server's, with its length.
func message(body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestLibrarySeesNoNumbersOfTransactions(t *testing.T) {
	ones := func(n int) []byte { return bytes.Repeat([]byte{1}, n) }
	reply := func(rest int) (sent, seen []byte) {
		body := ones(12 + rest)
		sent = message(body...)
		clear(body[4:12])
		return sent, message(body...)
	}
	sent, seen := message(ones(36)...), message(ones(36)...) // the handshake, which has none
	for _, rest := range []int{4, 0, 100} {
		s, w := reply(rest)
		sent, seen = append(sent, s...), append(seen, w...)
	}
	for size := 1; size <= len(sent); size++ {
		l := new(link)
		got := bytes.Clone(sent)
		for i := 0; i < len(got); i += size {
			l.scan(got[i:min(i+size, len(got))])
		}
		if !bytes.Equal(got, seen) {
			t.Fatalf("read in pieces of %d bytes: % x; want % x", size, got, seen)
		}
	}
}

func TestServerThatDoesNotAnswerTheHandshakeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer func() { _, _ = client.Close(), server.Close() }()
		began := time.Now()
		l := &link{Conn: client, limit: began.Add(handshake)}
		if err := l.SetReadDeadline(began.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Read(make([]byte, 4)); err == nil || time.Since(began) != handshake {
			t.Errorf("%v after %v; want a time-out after %v", err, time.Since(began), handshake)
		}
		l.scan(message(1, 2, 3, 4))
		if err := l.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Read(make([]byte, 4)); err == nil || time.Since(began) != time.Hour+handshake {
			t.Errorf("%v after %v; want what the library has asked for", err, time.Since(began))
		}
	})
}
