package configs

import (
	"fmt"

	"github.com/goccy/go-yaml"
)

// Text gives the tree as YAML; secrets are masked.
func Text(c Config) (string, error) {
	b, err := yaml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	return string(b), nil
}

// Map gives the tree as nested maps under the keys of the file; secrets are
// masked.
func Map(c Config) (map[string]any, error) {
	text, err := Text(c)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("read the configuration back: %w", err)
	}
	return m, nil
}
