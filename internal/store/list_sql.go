package store

import (
	"strconv"
	"strings"
)

// query is a statement that is put together from fixed text, with every value as a parameter.
type query struct {
	strings.Builder

	args []any
}

// arg adds a value and returns its place in the statement.
func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

// ids is a range of message ids: from, and below, which is exclusive.
type ids struct{ from, below int64 }

// within returns the condition that a column is in the range.
func (q *query) within(column string, r ids) string {
	return column + " >= " + q.arg(r.from) + " AND " + column + " < " + q.arg(r.below)
}

// messages returns the conditions on the table messages, called m.
func (q *query) messages(f *Filter) (conditions []string) {
	add := func(sql string) { conditions = append(conditions, sql) }
	if len(f.Routes) > 0 {
		add("m.route = ANY(" + q.arg(f.Routes) + ")")
	}
	if f.KeyPrefix != "" {
		add("m.message_key LIKE " + q.arg(likePrefix(f.KeyPrefix)))
	}
	if f.Topic != "" {
		add("m.topic = " + q.arg(f.Topic))
	}
	if f.Partition != nil {
		add("m.partition = " + q.arg(*f.Partition))
	}
	if f.FromOffset != nil {
		add(`m."offset" >= ` + q.arg(*f.FromOffset))
	}
	if f.ToOffset != nil {
		add(`m."offset" < ` + q.arg(*f.ToOffset))
	}
	if !f.Since.IsZero() {
		add("m.received_at >= " + q.arg(f.Since))
	}
	if !f.Until.IsZero() {
		add("m.received_at < " + q.arg(f.Until))
	}
	return conditions
}

// deliveries returns the conditions on the table deliveries, or on failures but for the status, called d.
func (q *query) deliveries(f *Filter) (conditions []string) {
	add := func(sql string) { conditions = append(conditions, sql) }
	if len(f.Routes) > 0 {
		add("d.route = ANY(" + q.arg(f.Routes) + ")")
	}
	if f.Status != "" {
		add("d.status = " + q.arg(f.Status.String()))
	}
	if f.Reason != "" {
		add("d.reason = " + q.arg(f.Reason.String()))
	}
	if f.HTTPStatus != 0 {
		add("d.http_status = " + q.arg(f.HTTPStatus))
	}
	if f.ErrorCode != "" {
		add("d.error_code = " + q.arg(f.ErrorCode))
	}
	return conditions
}

// likePrefix is the pattern of all texts that begin so. The planner makes a range of the index of it, whose column has
// the collation C.
func likePrefix(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(prefix) + "%"
}

func and(conditions []string) string {
	if len(conditions) == 0 {
		return "true"
	}
	return strings.Join(conditions, " AND ")
}

// statusColumns are those of the view message_status, in the order of MessageStatus.
const statusColumns = `m.id, m.route, m.message_key, m.lane, m.topic, m.partition, m."offset", m.produced_at, m.received_at,
	COALESCE(d.status, '') AS status, d.reason, d.detail, COALESCE(d.attempts, 0) AS attempts, d.http_status, d.error_code, d.error,
	d.next_attempt_at, d.settled_at`

// fetchSQL reads the messages of the ids that fit, the newest first.
func fetchSQL(f *Filter, of []int64) *query {
	q := &query{}
	id := q.arg(of)
	q.WriteString("SELECT " + statusColumns + " FROM ferry.messages AS m JOIN ferry.deliveries AS d ON d.message_id = m.id WHERE m.id = ANY(" +
		id + ") AND " + and(append(q.messages(f), q.deliveries(f)...)) + " ORDER BY m.id DESC")
	return q
}

// statusSQL reads one message, also one whose row in deliveries is gone.
func statusSQL(id int64) *query {
	q := &query{}
	q.WriteString("SELECT " + statusColumns + " FROM ferry.messages AS m LEFT JOIN ferry.deliveries AS d ON d.message_id = m.id WHERE m.id = " + q.arg(id))
	return q
}

// windowSQL returns up to n ids of a range that fit, the newest first. It reads the table that can tell, or both; payloads
// make messages the wider one.
func windowSQL(f *Filter, r ids, n int) *query {
	q := &query{}
	switch {
	case !f.onMessages():
		q.WriteString("SELECT d.message_id FROM ferry.deliveries AS d WHERE " + q.within("d.message_id", r) + " AND " + and(q.deliveries(f)))
	case !f.onDeliveries():
		q.WriteString("SELECT m.id AS message_id FROM ferry.messages AS m WHERE " + q.within("m.id", r) + " AND " + and(q.messages(f)))
	default:
		q.WriteString("SELECT d.message_id FROM ferry.deliveries AS d JOIN ferry.messages AS m ON m.id = d.message_id WHERE " +
			q.within("d.message_id", r) + " AND " + q.within("m.id", r) + " AND " + and(q.deliveries(f)) + " AND " + and(q.messages(f)))
	}
	q.WriteString(" ORDER BY message_id DESC LIMIT " + q.arg(n))
	return q
}

// failuresSQL looks at up to n failures of a range, the newest first, and returns how many it looked at, the oldest of
// them, and the ids of those that fit. It goes along an index that is in the order of ids: that of the routes or of the
// reason, as asked for, or the primary key.
func failuresSQL(f *Filter, r ids, n int, by failuresIndex) *query {
	q, failed := &query{}, *f
	failed.Status = ""
	from := "ferry.failures AS x WHERE "
	switch by {
	case byRoute:
		from = "unnest(" + q.arg(f.Routes) + "::text[]) AS r (route) CROSS JOIN LATERAL (SELECT f.* FROM ferry.failures AS f WHERE f.route = r.route AND " +
			q.within("f.message_id", r) + " ORDER BY f.message_id DESC LIMIT " + q.arg(n) + ") AS x WHERE "
	case byReason:
		from += "x.reason = " + q.arg(f.Reason.String()) + " AND "
	case byID:
	}
	q.WriteString("WITH w AS (SELECT x.* FROM " + from + q.within("x.message_id", r) + " ORDER BY x.message_id DESC LIMIT " + q.arg(n) + ") ")
	q.looked("w AS d", and(q.deliveries(&failed)))
	return q
}

// failuresProbeSQL counts the failures of the routes, up to n.
func failuresProbeSQL(f *Filter, n int) *query {
	q := &query{}
	q.WriteString("SELECT count(*) FROM (SELECT FROM ferry.failures AS f WHERE f.route = ANY(" + q.arg(f.Routes) + ") LIMIT " + q.arg(n) + ") AS f")
	return q
}

// unsettledSQL does the same with the messages that reconcile keeps an eye on.
func unsettledSQL(f *Filter, r ids, n int) *query {
	q := &query{}
	q.WriteString("WITH w AS (SELECT u.message_id FROM ferry.unsettled AS u WHERE " + q.within("u.message_id", r) +
		" ORDER BY u.message_id DESC LIMIT " + q.arg(n) + ") ")
	q.looked(`(
		SELECT w.message_id, l.status, l.route, l.reason, l.http_status, l.error_code
		FROM w
		LEFT JOIN LATERAL (SELECT x.* FROM ferry.deliveries AS x WHERE x.message_id = w.message_id LIMIT 1) AS l ON true
	) AS d`, and(q.deliveries(f)))
	return q
}

func (q *query) looked(from, fits string) {
	q.WriteString("SELECT count(*), COALESCE(min(d.message_id), 0), COALESCE(array_agg(d.message_id ORDER BY d.message_id DESC) FILTER (WHERE " +
		fits + "), '{}') FROM " + from)
}

// prefixSQL returns up to n ids of messages whose keys begin so, in no order.
func prefixSQL(f *Filter, routes []string, n int) *query {
	q := &query{}
	q.WriteString("SELECT m.id FROM unnest(" + q.arg(routes) + "::text[]) AS r (route) CROSS JOIN LATERAL (SELECT x.id FROM ferry.messages AS x " +
		"WHERE x.route = r.route AND x.message_key LIKE " + q.arg(likePrefix(f.KeyPrefix)) + " LIMIT " + q.arg(n) + ") AS m LIMIT " + q.arg(n))
	return q
}

// positionSQL returns up to n ids of messages that came from partitions, in no order. The index has all that is asked for.
func positionSQL(f *Filter, p partitions, n int) *query {
	q := &query{}
	q.WriteString("SELECT m.id FROM unnest(" + q.arg(p.routes) + "::text[], " + q.arg(p.topicIDs) + "::uuid[], " + q.arg(p.numbers) +
		"::int[]) AS p (route, topic_id, partition) CROSS JOIN LATERAL (SELECT x.id FROM ferry.messages AS x " +
		"WHERE x.route = p.route AND x.topic_id = p.topic_id AND x.partition = p.partition")
	if f.FromOffset != nil {
		q.WriteString(` AND x."offset" >= ` + q.arg(*f.FromOffset))
	}
	if f.ToOffset != nil {
		q.WriteString(` AND x."offset" < ` + q.arg(*f.ToOffset))
	}
	q.WriteString(" LIMIT " + q.arg(n) + ") AS m LIMIT " + q.arg(n))
	return q
}

// routesSQL returns up to n ids of messages of routes, in no order, from the same index.
func routesSQL(routes []string, n int) *query {
	q := &query{}
	q.WriteString("SELECT m.id FROM unnest(" + q.arg(routes) + "::text[]) AS r (route) CROSS JOIN LATERAL (SELECT x.id FROM ferry.messages AS x " +
		"WHERE x.route = r.route LIMIT " + q.arg(n) + ") AS m LIMIT " + q.arg(n))
	return q
}

// lastBelowSQL returns the last message below an id.
func lastBelowSQL(below int64) *query {
	q := &query{}
	q.WriteString("SELECT d.message_id FROM ferry.deliveries AS d WHERE d.message_id < " + q.arg(below) + " ORDER BY d.message_id DESC LIMIT 1")
	return q
}
