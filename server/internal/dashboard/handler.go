package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// policy is the content security policy: nothing but the files of this package.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// writeHeader is a header that pages of other origins cannot set without a preflight request,
// which is refused.
const writeHeader = "Kinproc-Dashboard"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if refusal := refuseOrigin(r); refusal != "" {
		refuse(w, http.StatusForbidden, refusal)
		return
	}
	if r.URL.Path == "/" && r.URL.Query().Has("token") {
		s.begin(w, r)
		return
	}
	if !s.known(r) {
		refuse(w, http.StatusUnauthorized, "Open the link that kinproc printed when it started the "+
			"dashboard. It works once; kinproc dashboard prints another one.")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// refuseOrigin returns why a request is refused, or nothing. A name that resolves to a loopback
// address may belong to somebody else (DNS rebinding), and other pages may send requests here.
func refuseOrigin(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if !isLoopback(strings.Trim(host, "[]")) {
		return fmt.Sprintf("The dashboard is not served under the name %q. Use 127.0.0.1 or localhost.",
			r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "The dashboard takes no requests from pages of other origins."
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		// A link on another page may lead here. Without a session, it shows nothing.
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			return "The dashboard takes no requests from other sites."
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead &&
		(r.Header.Get(writeHeader) == "" || r.Header.Get("Origin") == "") {
		return "Only the dashboard's own page may send this request."
	}
	return ""
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// begin exchanges the token for a session.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) {
	if !s.known(r) {
		given := r.URL.Query().Get("token")
		s.mu.Lock()
		right := s.token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) == 1
		if right && r.Method == http.MethodGet {
			if s.token = ""; s.options.Renewed != nil {
				s.token = rand.Text()
			}
		}
		s.mu.Unlock()
		if !right || r.Method != http.MethodGet {
			refuse(w, http.StatusForbidden, "This link has been used, or belongs to another dashboard. "+
				"kinproc dashboard prints another one.")
			return
		}
		if s.options.Renewed != nil {
			s.options.Renewed()
		}
		http.SetCookie(w, &http.Cookie{
			Name: cookieName(r), Value: s.session, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode,
		})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// known reports whether a request belongs to the session.
func (s *Server) known(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName(r))
	return err == nil && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(s.session)) == 1
}

// cookieName includes the port, because the dashboards of a machine share their cookies.
func cookieName(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host)
	return "kinproc-dashboard-" + port
}

// refuse sends a sentence.
func refuse(w http.ResponseWriter, code int, sentence string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, sentence)
}

func sendJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the browser has gone away
}
