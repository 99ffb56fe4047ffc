package verdict

import (
	"math"
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		values []string
		want   time.Duration
		ok     bool
	}{
		"none":                {nil, 0, false},
		"empty":               {[]string{""}, 0, false},
		"spaces":              {[]string{"  "}, 0, false},
		"zero":                {[]string{"0"}, 0, true},
		"seconds":             {[]string{"3"}, 3 * time.Second, true},
		"padded":              {[]string{" 120\t"}, 2 * time.Minute, true},
		"leading zeros":       {[]string{"003"}, 3 * time.Second, true},
		"negative":            {[]string{"-1"}, 0, false},
		"plus":                {[]string{"+3"}, 0, false},
		"fraction":            {[]string{"1.5"}, 0, false},
		"unit":                {[]string{"3s"}, 0, false},
		"words":               {[]string{"soon"}, 0, false},
		"list":                {[]string{"3, 5"}, 0, false},
		"hex":                 {[]string{"0x10"}, 0, false},
		"other digits":        {[]string{"３"}, 0, false},
		"huge":                {[]string{"99999999999"}, math.MaxInt64, true},
		"beyond 64 bits":      {[]string{"99999999999999999999999999999999"}, math.MaxInt64, true},
		"largest":             {[]string{"9223372036"}, 9223372036 * time.Second, true},
		"date":                {[]string{at(90 * time.Second)}, 90 * time.Second, true},
		"date in the past":    {[]string{at(-time.Hour)}, 0, true},
		"date now":            {[]string{at(0)}, 0, true},
		"far date":            {[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, math.MaxInt64, true},
		"RFC 850 date":        {[]string{now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 GMT")}, time.Minute, true},
		"asctime date":        {[]string{now.Add(time.Minute).Format(time.ANSIC)}, time.Minute, true},
		"ISO date":            {[]string{now.Add(time.Minute).Format(time.RFC3339)}, 0, false},
		"twice the same":      {[]string{"3", "3"}, 3 * time.Second, true},
		"twice":               {[]string{"3", "5"}, 5 * time.Second, true},
		"twice, one garbage":  {[]string{"soon", "5"}, 5 * time.Second, true},
		"twice, both garbage": {[]string{"soon", "later"}, 0, false},
	} {
		got, ok := retryAfter(http.Header{"Retry-After": c.values}, now)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %s, %v; want %s, %v", name, got, ok, c.want, c.ok)
		}
	}
	// The destination's clock is an hour off: its own Date says what it means.
	h := http.Header{"Date": {at(time.Hour)}, "Retry-After": {at(time.Hour + 7*time.Second)}}
	if got, ok := retryAfter(h, now); got != 7*time.Second || !ok {
		t.Errorf("clocks apart: %s, %v", got, ok)
	}
}
