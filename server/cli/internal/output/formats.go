package output

import (
	"encoding/json"
	"io"
	"strings"
	"text/tabwriter"
)

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
