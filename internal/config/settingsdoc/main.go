// Command settingsdoc writes the settings page to the file that it is given.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/ferry-forward/ferry/internal/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: settingsdoc FILE")
		os.Exit(2)
	}
	var page bytes.Buffer
	if err := config.WriteMarkdown(&page); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.WriteFile(os.Args[1], page.Bytes(), 0o644); err != nil { //nolint:gosec // a page that everybody may read
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
