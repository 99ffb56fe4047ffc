package forwarder

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferry-forward/ferry/internal/admin"
	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/config"
	"github.com/ferry-forward/ferry/internal/kafka"
	"github.com/ferry-forward/ferry/internal/route"
	"github.com/ferry-forward/ferry/internal/store"
	"github.com/ferry-forward/ferry/internal/worker"
)

const (
	// letterTime is how long Kafka may take for one dead letter, unless jobs have less than three times as much.
	letterTime = 10 * time.Second
	// producerStop bounds how long the Kafka producer holds up the end of a process.
	producerStop = 3 * time.Second
)

// writesDeadLetters says whether this forwarder writes dead letters: those of all routes of its file, whichever it works,
// since all it needs for them is Kafka.
func writesDeadLetters(cfg *config.Forwarder, file *route.File) bool {
	return len(cfg.KafkaBrokers) > 0 && len(file.DeadLetters()) > 0
}

// kafkaFaults says what is wrong with the settings of dead letters.
func kafkaFaults(cfg *config.Forwarder, file *route.File) []string {
	if len(cfg.KafkaBrokers) == 0 {
		for _, r := range worked(cfg, file) {
			if r.DeadLetter.Topic != "" {
				return []string{fmt.Sprintf("FERRY_KAFKA_BROKERS: is not set, and route %s has dead_letter; set such as kafka-1:9092,kafka-2:9092, "+
					"or remove dead_letter from %s", r.Name, cfg.Routes)}
			}
		}
		return nil
	}
	if !writesDeadLetters(cfg, file) {
		return nil
	}
	settings, err := kafkaConfig(cfg)
	if err == nil {
		err = kafka.CheckProducer(settings)
	}
	if err == nil {
		return nil
	}
	var faults []string
	for line := range strings.Lines(err.Error()) {
		faults = append(faults, "FERRY_KAFKA_CONFIG: "+strings.TrimSpace(line))
	}
	return faults
}

func kafkaConfig(cfg *config.Forwarder) (kafka.Config, error) {
	properties, err := kafka.Properties(cfg.KafkaConfig.Reveal())
	if err != nil {
		return kafka.Config{}, err
	}
	return kafka.Config{Brokers: cfg.KafkaBrokers, Properties: properties}, nil
}

// kafkaWarnings says what looks odd in settings that were checked.
func kafkaWarnings(cfg *config.Forwarder, file *route.File) []string {
	if !writesDeadLetters(cfg, file) {
		return nil
	}
	settings, err := kafkaConfig(cfg)
	if err != nil {
		return nil
	}
	return kafka.ProducerWarnings(settings)
}

// deadLettersHere says for people which dead letters this forwarder writes.
func deadLettersHere(cfg *config.Forwarder, file *route.File) string {
	var all []string
	for _, r := range file.Routes {
		if r.DeadLetter.Topic != "" {
			all = append(all, r.Name)
		}
	}
	switch {
	case len(all) == 0:
		return "no route has dead letters"
	case writesDeadLetters(cfg, file):
		return "dead letters written here: those of " + strings.Join(all, ", ")
	}
	return "dead letters of " + strings.Join(all, ", ") + " are left to forwarders with FERRY_KAFKA_BROKERS"
}

// makeDeadLetters makes the worker of dead letters. Without Kafka it works none, but River has to know their jobs.
func makeDeadLetters(cfg *config.Forwarder, s *app.Setup, st *store.Store) (*worker.DeadLetter, error) {
	job, _ := times(s.Routes)
	c := worker.DeadLetterConfig{
		Topics: s.Routes.DeadLetters(), Store: st, Metrics: s.Metrics, Logger: s.Log.Logger, JobTime: job,
		// In no other forwarder would they fare better, and what is delivered does not need them: so this one stays ready.
		Tell: func(topic, why string) {
			if why != "" {
				why = "dead letters wait: " + why
			} else {
				s.Log.Info("dead letters are written again", "topic", topic)
			}
			s.Parts.Note(admin.Routes, "dead letters to "+topic, why)
		},
	}
	if writesDeadLetters(cfg, s.Routes) {
		settings, err := kafkaConfig(cfg)
		if err != nil {
			return nil, err
		}
		settings.Logger = s.Log.Logger
		producer, err := kafka.NewProducer(settings, min(letterTime, job/3))
		if err != nil {
			return nil, err //nolint:wrapcheck // says what was being done
		}
		s.Life.Add("Kafka producer", producerStop, producer.Close)
		c.Producer = producer
		s.Log.Info("writing dead letters", "topics", slices.Compact(slices.Sorted(maps.Values(c.Topics))))
	}
	return worker.NewDeadLetter(c), nil
}
