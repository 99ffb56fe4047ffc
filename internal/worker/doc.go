// Package worker adapts deliveries to River: its forward worker takes a job, loads the job's messages, has each of them
// delivered, settles the outcomes and tells River how the job ended. It is thin: what is sent and how the answer is judged
// is internal/forward's, what an outcome does to the database is internal/store's.
//
// The rules that keep a message from being lost or sent behind another's back:
//
//   - deliveries.job_id names the one job that owns a message. A run handles only pending messages that its job owns, and
//     every outcome is settled under that condition (the fence), so a job that runs twice changes nothing twice.
//   - A job is a group of new messages or the own job of one message. A message that was sent and not delivered leaves its
//     group: the settling transaction gives it a job of its own, and from then on River's retry, snooze, cancel and discard
//     speak about exactly one message. What was not sent stays in its group, which is snoozed whole.
//   - A run that outlives its time sends nothing more. Its time is told by the database's clock, from the moment River
//     fetched the job, because River's leader rescues by that moment: a process that was frozen meanwhile must not send
//     beside the run that replaced it. Outcomes that such a run already has are settled, under the fence; to River it
//     returns no result at all, for River would let it overwrite the state of the newer run.
//   - A run of a failed message's own job sends it again only if an operator asked for it, which River's last error tells; see
//     askedFor. What an operator does to a job that does not run, and whatever else leaves a pending message without a live
//     job, is found by Reconcile.
//   - River's attempt counter decides nothing. It also rises when a job is rescued, so attempts are counted in deliveries,
//     by outcomes alone; a job is ended by its worker.
package worker
