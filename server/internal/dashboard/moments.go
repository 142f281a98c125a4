package dashboard

import (
	"net/http"
	"time"

	"github.com/kinproc/kinproc/chain/history"
)

// moment is a time to which the page can go back.
type moment struct {
	Revision int64     `json:"revision"`
	Time     time.Time `json:"time"`
	Writes   int       `json:"writes"`
	// People are those who wrote then, such as "kubectl as jane", but no control loops.
	People []string `json:"people"`
}

// serveMoments returns the moments, the oldest first.
func (s *Server) serveMoments(w http.ResponseWriter, r *http.Request) {
	known, err := history.Moments(r.Context(), s.config)
	if err != nil {
		refuse(w, http.StatusBadGateway, "The moments are not known: "+err.Error())
		return
	}
	moments := make([]moment, len(known))
	for i, m := range known {
		moments[i] = moment{m.Revision, m.Time, m.Writes, []string{}}
		for _, w := range m.Writers {
			client, loop := clientOfAgent(w.User, w.UserAgent)
			if !loop {
				moments[i].People = append(moments[i].People, client+" as "+w.User)
			}
		}
	}
	sendJSON(w, moments)
}
