package configs

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/shlex"
)

// Agents that may be configured by environment variables alone.
var knownAgents = []string{"claude", "codex", "command", "scripted"}

// override sets the keys for which there is an environment variable.
func (c *Config) override(env Env) error {
	if c.Agents == nil {
		c.Agents = map[string]Agent{}
	}
	for _, name := range knownAgents {
		if _, ok := c.Agents[name]; !ok {
			c.Agents[name] = Agent{}
		}
	}
	if v, ok := env("PULSE_COMMAND"); ok && v != "" {
		words, err := shlex.Split(v)
		if err != nil {
			return fmt.Errorf("PULSE_COMMAND: %w: quote it as for a shell", err)
		}
		a := c.Agents["command"]
		a.Command = words
		c.Agents["command"] = a
	}
	if v, ok := env("PULSE_SCRIPT"); ok && v != "" {
		a := c.Agents["scripted"]
		a.Script = v
		c.Agents["scripted"] = a
	}
	return overrideValue(reflect.ValueOf(c).Elem(), "PULSE", env)
}

var notWord = regexp.MustCompile(`[^A-Z0-9]+`)

func overrideValue(v reflect.Value, prefix string, env Env) error {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			if key == "" || key == "-" {
				continue
			}
			if err := overrideValue(v.Field(i), prefix+"_"+strings.ToUpper(key), env); err != nil {
				return err
			}
		}
		return nil
	case reflect.Map:
		return overrideMap(v, prefix, env)
	}
	// A variable that is set and empty counts as not set: compose files and
	// unit files pass on what is not there in this way.
	text, ok := env(prefix)
	if !ok || text == "" {
		return nil
	}
	if err := setText(v, text); err != nil {
		return fmt.Errorf("%s is %q: %w", prefix, text, err)
	}
	return nil
}

// overrideMap goes through the entries that exist; a map's values cannot be
// changed in place.
func overrideMap(v reflect.Value, prefix string, env Env) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		entry := reflect.New(v.Type().Elem()).Elem()
		entry.Set(v.MapIndex(k))
		name := notWord.ReplaceAllString(strings.ToUpper(k.String()), "_")
		if err := overrideValue(entry, prefix+"_"+name, env); err != nil {
			return err
		}
		v.SetMapIndex(k, entry)
	}
	return nil
}

func setText(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("not a duration such as 90s or 5m")
		}
		v.SetInt(int64(d))
		return nil
	case []string:
		list, err := splitList(text)
		v.Set(reflect.ValueOf(list))
		return err
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("not a whole number")
		}
		v.SetInt(int64(n))
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("not true or false")
		}
		v.SetBool(b)
	default:
		return fmt.Errorf("this key cannot be set by the environment")
	}
	return nil
}

// splitList splits as a path list does at ':' where every part is a path, and
// as a shell splits words otherwise.
func splitList(text string) ([]string, error) {
	if strings.HasPrefix(text, "/") || strings.HasPrefix(text, "~") {
		return slices.DeleteFunc(strings.Split(text, ":"), func(s string) bool { return s == "" }), nil
	}
	words, err := shlex.Split(text)
	if err != nil {
		return nil, fmt.Errorf("quote it as for a shell: %w", err)
	}
	return words, nil
}
