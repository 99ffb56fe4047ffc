// Package forward makes one attempt at delivering one message: decode, map, send, judge, and when to try next. There is
// no queue and no SQL in it; the worker brings the message and stores what came of it.
//
// # The one window
//
// A delivered message is not sent again. What can duplicate is the time from the moment in which a request goes out to
// the commit of its outcome: a process that dies in between leaves a message that was sent and does not know it. Nothing
// in this package may widen that window. So one Deliver is at most one request on the wire (see package send), nothing
// is repeated here, and a request whose end we did not wait for, because the process stops, is Aborted: not judged, not
// counted, sent again later. Every request carries the header Idempotency-Key: <route>/<message key>, the same in all
// attempts and after any crash, so that the receiver can close the window. A replay changes it only when it is told to; it
// then ends in #r<n>, the same in all attempts of that replay.
//
// # Verdicts
//
//	verdict    the message                                    counts   the result
//	delivered  done                                           yes      delivered
//	retry      stays pending, next time by backoff            yes      pending; the last attempt: failed, exhausted
//	hold       stays pending: asked to wait, or not reached   no       pending, until max_age: failed, expired
//	reject     failed for good                                yes      failed, rejected
//
// A message that can't be decoded or mapped fails at its first run, without a request: undecodable, unmappable. One that
// is older than max_age fails without a request too: expired.
package forward
