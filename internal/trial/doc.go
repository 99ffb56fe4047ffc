// Package trial tries a route out: what it makes of a record, what goes over the wire, and how an answer is judged. It
// maps, sends and judges by the code that the worker runs (packages intake, forward, send, verdict); what is its own is
// how the outcome is shown: as text, as a curl command, as JSON, or compared with what a file of test cases wants.
//
// Nothing that it shows holds what ${…} of the route file stands for: see Text.
package trial
