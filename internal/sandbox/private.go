package sandbox

import "path/filepath"

// Private are the places of a home with keys to other doors: logins of other
// programs, what somebody typed, and the CLIs' memory of other work.
func Private(home string) []string {
	var out []string
	for _, name := range []string{
		".ssh", ".gnupg", ".password-store", ".netrc", ".git-credentials", ".pgpass", ".my.cnf", ".vault-token", ".Xauthority",
		".aws", ".azure", ".kube", ".docker", ".terraform.d", ".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub",
		".config/git/credentials", ".config/op", ".config/pulse", ".local/share/keyrings", ".local/share/pulse",
		".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
		".bash_history", ".zsh_history", ".psql_history", ".python_history", ".node_repl_history",
		".claude", ".claude.json", ".codex", ".gemini", ".cursor", ".config/opencode", ".local/share/opencode",
	} {
		out = append(out, filepath.Join(home, filepath.FromSlash(name)))
	}
	return out
}
