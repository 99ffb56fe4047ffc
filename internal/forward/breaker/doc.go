// Package breaker judges a destination by what its requests come to, so that an outage burns no message's attempts and a
// bad message does not count as an outage. It is pure: the clock comes in with each call. One Breaker belongs to one route
// of one process.
//
// # Evidence
//
// A message that fails again and again says nothing about its destination; a destination that fails with message after
// message does. So the state comes from first requests (a message's very first) and from the last sign of life, which is
// any answer that is no fault, a reject too:
//
//	state      when                                                      a fault
//	healthy    fewer than 20 first requests within 5 minutes, or         burns an attempt; but not the last one of a
//	           fewer than half of the last 50 failed                     message that has seen the destination unavailable
//	                                                                     since its first fault
//	degraded   at least half of at least 20 failed                       burns none; a quarter of the concurrency
//	open       since the last sign of life 100 first requests failed,    burns none; nothing goes out but a probe
//	           or 5 s passed and 5 different messages failed
//
// While it is open, one probe goes out per cooldown, which doubles with each probe that fails. A probe that is answered
// closes it, and the requests that may be in flight grow 1, 2, 4, … again.
//
// # Asked to wait
//
// 429, and 503 with Retry-After, are signs of life of a destination that has too much to do: half as many requests may then
// be in flight, and one more again for every round of answers.
package breaker
