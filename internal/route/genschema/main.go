// Command genschema writes the JSON Schema of route files: genschema PATH.
package main

import (
	"fmt"
	"os"

	"github.com/ferry-forward/ferry/internal/route"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genschema PATH")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], route.Schema(), 0o644); err != nil { //nolint:gosec // a file for everybody to read
		fmt.Fprintf(os.Stderr, "writing the schema: %v\n", err)
		os.Exit(1)
	}
}
