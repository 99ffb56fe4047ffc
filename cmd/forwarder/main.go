// Command forwarder sends the messages that the ingester stored to their HTTP destinations, and keeps the schema.
package main

import (
	"os"

	"github.com/ferry-forward/ferry/internal/app"
	"github.com/ferry-forward/ferry/internal/app/forwarder"
)

func main() { os.Exit(app.Main(forwarder.Command())) }
