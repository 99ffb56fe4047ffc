// Command genschema writes the JSON Schemas of route files and of their test cases: genschema FOLDER.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ferry-forward/ferry/internal/route"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genschema FOLDER")
		os.Exit(2)
	}
	for name, schema := range map[string][]byte{"routes": route.Schema(), "tests": route.CasesSchema()} {
		path := filepath.Join(os.Args[1], name+".schema.json")
		if err := os.WriteFile(path, schema, 0o644); err != nil { //nolint:gosec // a file for everybody to read
			fmt.Fprintf(os.Stderr, "writing a schema: %v\n", err)
			os.Exit(1)
		}
	}
}
