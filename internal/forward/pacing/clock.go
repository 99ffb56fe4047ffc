package pacing

import "time"

// clock tells what time of this process's clock a time of the database's clock is. Only differences count, so that it does
// not matter whether either clock is right, and this process's is the monotonic one, which nobody sets.
//
// The database looked at its clock between when a statement was sent and when its answer came:
//
//	sent ──── the database's now ──── received
//
// So received - now is never less than the difference of the clocks, and the smallest one that was seen comes closest. What
// it gives is never too early, and an answer that hung somewhere does not move it: its times are the past that they are.
type clock struct {
	known bool
	base  time.Time     // of this process: the first answer
	db    time.Time     // of the database, at that answer
	shift time.Duration // of this process's time since base against the database's since db
	at    time.Time     // when shift was known
}

// drift is how much clocks may run apart in a second.
const drift = time.Millisecond

// observe takes an answer's times into account.
func (c *clock) observe(db, sent, received time.Time) {
	if !c.known {
		*c = clock{known: true, base: received, db: db, at: received}
		return
	}
	since := db.Sub(c.db)
	highest := received.Sub(c.base) - since
	lowest := sent.Sub(c.base) - since
	c.shift = min(highest, c.shift+time.Duration(received.Sub(c.at).Seconds()*float64(drift)))
	c.at = received
	if c.shift < lowest { // the database's clock was set back
		c.shift = highest
	}
}

// local returns the time of this process at a time of the database.
func (c *clock) local(db time.Time) time.Time { return c.base.Add(db.Sub(c.db) + c.shift) }
