// Command ingester stores what Kafka has for Ferry's routes in Postgres, with a job for the forwarder.
package main

import (
	"os"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/app/ingester"
)

func main() { os.Exit(app.Main(ingester.Command())) }
