package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// CheckFormat returns an error if the value of --output is neither empty nor one of the formats.
func CheckFormat(value string, formats ...string) error {
	if value == "" || slices.Contains(formats, value) {
		return nil
	}
	return fmt.Errorf("--output: %q is not a format, use %s", value, strings.Join(formats, " or "))
}

// Table prints rows with aligned columns, the first of which are the titles.
func Table(w io.Writer, rows [][]string) error {
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := io.WriteString(aligned, strings.Join(row, "\t")+"\n"); err != nil {
			return err
		}
	}
	return aligned.Flush()
}

// JSON prints a value over several lines.
func JSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
