package telegramtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// spec is the published description of the API, as far as calls can be checked against it.
type spec struct {
	Methods map[string]specItem `json:"methods"`
	Types   map[string]specItem `json:"types"`
}

type specItem struct {
	Fields   []specField `json:"fields"`
	Subtypes []string    `json:"subtypes"`
}

type specField struct {
	Name     string   `json:"name"`
	Types    []string `json:"types"`
	Required bool     `json:"required"`
}

// SpecFile is the name of the description inside Options.SpecsDir.
const SpecFile = "telegram-bot-api.json"

func loadSpec(dir string) (*spec, error) {
	if dir == "" {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(dir, SpecFile))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the API description: %w", err)
	}
	var sp spec
	if err := json.Unmarshal(data, &sp); err != nil {
		return nil, fmt.Errorf("parse the API description: %w", err)
	}
	return &sp, nil
}

// check returns what is wrong with a call; a nil spec finds nothing.
func (sp *spec) check(method string, p params) []string {
	if sp == nil {
		return nil
	}
	m, ok := sp.Methods[method]
	if !ok {
		return []string{"no such method (names are compared with case)"}
	}
	known := map[string]specField{}
	var wrong []string
	for _, f := range m.Fields {
		known[f.Name] = f
		_, file := p.files[f.Name]
		if f.Required && !p.has(f.Name) && !file {
			wrong = append(wrong, "required parameter "+f.Name+" is missing")
		}
	}
	for name, v := range p.values {
		f, ok := known[name]
		if !ok {
			wrong = append(wrong, "unknown parameter "+name)
			continue
		}
		wrong = append(wrong, sp.checkParam(f, v)...)
	}
	for name := range p.files {
		f, ok := known[name]
		if ok && slices.Contains(f.Types, "InputFile") {
			continue
		}
		if !ok && attached(p, name) {
			continue
		}
		wrong = append(wrong, "file sent for "+name+", which takes none")
	}
	sort.Strings(wrong)
	return wrong
}

func attached(p params, name string) bool {
	for _, v := range p.values {
		if strings.Contains(v.text, "attach://"+name) {
			return true
		}
	}
	return false
}

func (sp *spec) checkParam(f specField, v param) []string {
	return sp.anyOf(f.Name, f.Types, func(t string) []string {
		if v.typed {
			var value any = v.text
			if !v.quote {
				value = decodeNumber(v.text)
			}
			// The real server takes JSON-serialised strings for complex values in JSON bodies too.
			if v.quote && !scalar(t) {
				value = decodeNumber(v.text)
			}
			return sp.checkValue(f.Name, t, value)
		}
		switch t {
		case "String", "InputFile":
			return nil
		}
		return sp.checkValue(f.Name, t, decodeNumber(v.text))
	})
}

func scalar(t string) bool {
	switch t {
	case "String", "InputFile", "Integer", "Float", "Boolean", "True":
		return true
	}
	return false
}

// anyOf tries each type and reports the findings of the one that came nearest.
func (sp *spec) anyOf(at string, types []string, try func(string) []string) []string {
	var best []string
	for i, t := range types {
		wrong := try(t)
		if len(wrong) == 0 {
			return nil
		}
		if i == 0 || len(wrong) < len(best) {
			best = wrong
		}
	}
	if len(types) > 1 {
		return []string{fmt.Sprintf("%s is none of %s: %s", at, strings.Join(types, ", "), strings.Join(best, "; "))}
	}
	return best
}

func decodeNumber(text string) any {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return text
	}
	return v
}

func (sp *spec) checkValue(at, t string, v any) []string {
	wrong := func() []string { return []string{fmt.Sprintf("%s is not %s", at, t)} }
	if inner, ok := strings.CutPrefix(t, "Array of "); ok {
		list, ok := v.([]any)
		if !ok {
			return wrong()
		}
		var all []string
		for i, e := range list {
			all = append(all, sp.checkValue(at+"["+strconv.Itoa(i)+"]", inner, e)...)
		}
		return all
	}
	switch t {
	case "String", "InputFile":
		if _, ok := v.(string); !ok {
			return wrong()
		}
		return nil
	case "Boolean", "True":
		if b, ok := v.(bool); !ok || (t == "True" && !b) {
			return wrong()
		}
		return nil
	case "Integer":
		n, ok := v.(json.Number)
		if !ok {
			return wrong()
		}
		if i, err := n.Int64(); err != nil || math.Abs(float64(i)) > 1<<52 {
			return wrong()
		}
		return nil
	case "Float":
		if _, ok := v.(json.Number); !ok {
			return wrong()
		}
		return nil
	}
	return sp.checkObject(at, t, v)
}

func (sp *spec) checkObject(at, t string, v any) []string {
	item, ok := sp.Types[t]
	if !ok {
		return nil
	}
	if len(item.Subtypes) > 0 {
		return sp.anyOf(at, item.Subtypes, func(sub string) []string { return sp.checkValue(at, sub, v) })
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s is not %s", at, t)}
	}
	known := map[string]specField{}
	var all []string
	for _, f := range item.Fields {
		known[f.Name] = f
		if _, ok := obj[f.Name]; f.Required && !ok {
			all = append(all, at+"."+f.Name+" is missing")
		}
	}
	for name, e := range obj {
		f, ok := known[name]
		if !ok {
			all = append(all, fmt.Sprintf("%s has no field %s in %s", at, name, t))
			continue
		}
		all = append(all, sp.anyOf(at+"."+name, f.Types, func(ft string) []string { return sp.checkValue(at+"."+name, ft, e) })...)
	}
	return all
}
