package main

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"
)

func TestServerAnnouncesNoMoreThanItMay(t *testing.T) {
	for name, tt := range map[string]struct {
		stream string
		fault  string // none: the stream passes
	}{
		"a text":                             {"$5\r\nhello\r\n+OK\r\n", ""},
		"a text that looks like a list":      {"$14\r\n*2000000000\r\n+\r\n:1\r\n", ""},
		"no text":                            {"$-1\r\n*1\r\n:1\r\n", ""},
		"no list":                            {"*-1\r\n+OK\r\n", ""},
		"lists in lists":                     {"*2\r\n*2\r\n:1\r\n:2\r\n%1\r\n+a\r\n$0\r\n\r\n", ""},
		"many lists, one after the other":    {strings.Repeat("*3\r\n:1\r\n:2\r\n$1\r\na\r\n", 1000), ""},
		"a line with a star":                 {"-ERR *9999999999\r\n(99999999999999999999999999\r\n,1.5\r\n#t\r\n_\r\n", ""},
		"a list of the largest size":         {"*1048576\r\n", ""},
		"a list that is larger":              {"*1048577\r\n", "a list of 1048577 values"},
		"a huge list":                        {"*2000000000\r\n", "a list of 2000000000 values"},
		"a huge map":                         {"%1000000\r\n", "a list of 1000000 values"},
		"a huge push":                        {">2000000\r\n", "a list of 2000000 values"},
		"a huge set":                         {"~2000000\r\n", "a list of 2000000 values"},
		"lists in lists in lists":            {strings.Repeat("*1\r\n", 33), "lists in lists"},
		"lists in lists that end":            {strings.Repeat("*2\r\n:1\r\n*1\r\n:1\r\n", 100), ""},
		"attributes":                         {strings.Repeat("*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n", 100), ""},
		"no text, written otherwise":         {"$-01\r\n*2000000000\r\n", "a list of 2000000000 values"},
		"a negative size":                    {"$-2\r\n", "no number"},
		"lists in lists that are huge":       {"*1000000\r\n*40000\r\n*40000\r\n", "a list of 40000 values"},
		"a huge text":                        {"$536870912\r\n", "a text of 536870912 bytes"},
		"a huge error":                       {"!536870912\r\n", "a text of 536870912 bytes"},
		"a number that is none":              {"*12a\r\n", "no number"},
		"a line without an end":              {"+" + strings.Repeat("a", 2<<20), "no end"},
		"a long line":                        {"-" + strings.Repeat("a", 1000) + "\r\n:1\r\n", ""},
		"a number without an end":            {"*" + strings.Repeat("9", 1000) + "\r\n", "no number"},
		"a huge list behind a text of zeros": {"$0\r\n\r\n*99999999\r\n", "a list of 99999999 values"},
	} {
		for _, size := range []int{1, 3, len(tt.stream)} {
			var a announced
			var err error
			for left := tt.stream; left != "" && err == nil; {
				n := min(size, len(left))
				err, left = a.take([]byte(left[:n])), left[n:]
			}
			if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s, %d bytes at a time: %v, want %q", name, size, err, tt.fault)
			}
		}
	}
}

func FuzzWhatAServerAnnounces(f *testing.F) {
	f.Add("*2\r\n$1\r\na\r\n:1\r\n", uint8(1))
	f.Add("%1\r\n|1\r\n+a\r\n+b\r\n>?\r\n", uint8(3))
	f.Fuzz(func(t *testing.T, stream string, size uint8) {
		whole := new(announced)
		want := whole.take([]byte(stream))
		parts := new(announced)
		var err error
		for left := stream; left != "" && err == nil; {
			n := min(int(size)+1, len(left))
			err, left = parts.take([]byte(left[:n])), left[n:]
		}
		if (err == nil) != (want == nil) {
			t.Errorf("%v at once, %v in parts", want, err)
		}
		if parts.values > maxAnnouncedValues+1 && err == nil || parts.skip > maxAnnouncedBytes+2 || len(parts.number) > maxAnnouncedDigits+1 || len(parts.left) > maxNested {
			t.Errorf("%+v", parts)
		}
	})
}

// TestDoctorEndsWhateverAServerAnnounces asks a server that answers all with the beginning of a list for which
// there would be room.
func TestDoctorEndsWhateverAServerAnnounces(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			go func() {
				defer c.Close() //nolint:errcheck // nobody reads any more
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := c.Write([]byte("*1500000\r\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	diagnose(t, "redis://"+l.Addr().String(), failed, map[string]string{"server": "bad announces a list of 1500000 values"}, "-timeout", (2 * time.Second).String())
}
