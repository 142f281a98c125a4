package reset

import "github.com/kinproc/kinproc/chain"

// seen returns the changes as followers see them. Of an object that was changed twice, that is the
// last change, with the state before the first.
func (r *reset) seen() chain.Changes {
	at := map[string]int{}
	all := chain.Changes{Opened: r.opened}
	for _, c := range r.changes {
		if i, ok := at[c.key]; ok {
			all.Objects[i].After, all.Objects[i].Revision = c.after, c.revision
			continue
		}
		if change, ok := chain.NewChange(c.before, c.after, c.revision); ok {
			at[c.key] = len(all.Objects)
			all.Objects = append(all.Objects, change)
		}
	}
	return all
}
