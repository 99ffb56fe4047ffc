package worker

import (
	"fmt"
	"strings"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/store"
)

// ownPrefix begins every error that the worker itself gives to River, so that a later run can tell "the last run ended
// with an outcome" from "the last run died": a rescue, a panic or a shutdown leaves another text.
const ownPrefix = store.OwnErrorPrefix

// outcomeError is an outcome as River and River UI show it. Its text is clean: it comes from an Attempt or a Reason.
type outcomeError string

func (e outcomeError) Error() string { return ownPrefix + string(e) }

func attemptError(a *message.Attempt) outcomeError {
	text := a.Verdict.String()
	if a.HTTPStatus != 0 {
		text += fmt.Sprintf(": HTTP %d", a.HTTPStatus)
	}
	if a.Error != "" {
		text += ": " + a.Error
	}
	if a.Detail != "" {
		text += " (" + a.Detail + ")"
	}
	return outcomeError(text)
}

// crashError makes an error of a recovered panic. A NUL in a job's error text would wedge River's completer for every
// later job of the process, hence the cleaning.
func crashError(p any) error {
	return fmt.Errorf("panic: %s", message.Clean(fmt.Sprint(p), 1024))
}

// failedResult ends the own job of a failed message: River discards it when the attempts are used up, and else shows it
// as cancelled with the reason.
func failedResult(job *rivertype.JobRow, reason message.Reason, detail string) error {
	err := outcomeError(reason.String())
	if detail != "" {
		err += outcomeError(": " + message.Clean(detail, 1024))
	}
	if reason == message.Exhausted {
		job.MaxAttempts = job.Attempt
		return err
	}
	return river.JobCancel(err)
}

// foreign says whether an error of a job is neither Ferry's own nor River's about a job that was cancelled while it ran: the
// run died.
func foreign(e rivertype.AttemptError) bool {
	return !strings.Contains(e.Error, ownPrefix) && !strings.Contains(e.Error, rivertype.ErrJobCancelledRemotely.Error())
}

// foreignErrors counts the errors at the end of a job's history that are foreign and younger than since: the runs that died
// without an outcome. (Outcomes that snooze the job leave no error there, hence since.)
func foreignErrors(errs []rivertype.AttemptError, since time.Time) int {
	n := 0
	for i := len(errs) - 1; i >= 0; i-- {
		if !foreign(errs[i]) || !errs[i].At.After(since) {
			break
		}
		n++
	}
	return n
}

// noResult is what a run returns that outlived its time: River then neither completes nor reschedules the job, whose
// state belongs to the run that replaced this one. River reports such an error for each of its jobs, and it has none.
type noResult struct{}

func (noResult) Error() string {
	return ownPrefix + "the run outlived its time; its result is of no account"
}
func (noResult) Jobs() []*rivertype.JobRow   { return nil }
func (noResult) ErrorsByID() map[int64]error { return nil }
