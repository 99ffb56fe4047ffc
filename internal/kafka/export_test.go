package kafka

import ck "github.com/confluentinc/confluent-kafka-go/v2/kafka"

// Break has librdkafka's producer end as it does when a broker's answer leaves it unsure of what is in the log.
func (p *Producer) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.p.TestFatalError(ck.ErrOutOfOrderSequenceNumber, "for the test")
}
