package api

import "strings"

// RouteNames lists the table of routes as "METHOD /path".
func RouteNames() []string {
	var out []string
	for _, rt := range (&Server{}).routes() {
		out = append(out, rt.method+" "+strings.TrimSuffix(rt.pattern, "{$}"))
	}
	return out
}
