package telegram

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/go-telegram/bot/models"

	"pulseloop/pulse"
)

const (
	maxUnits    = 4096 // UTF-16 units a message
	maxEntities = 100  // more are silently dropped by the platform
	maxRow      = 8    // buttons
	maxRows     = 12
	maxLabel    = 64
)

// chunk is one message as the platform takes it.
type chunk struct {
	text     string
	entities []models.MessageEntity
}

// run is a range of characters in one style.
type run struct {
	from, to int
	style    pulse.Style
	lang     string
}

// flat is a neutral message as characters and styled ranges.
type flat struct {
	text []rune
	runs []run
}

// flatten cleans the spans and joins them; blocks get lines of their own.
func flatten(spans []pulse.Span) flat {
	var f flat
	block := false
	for _, s := range spans {
		text := []rune(clean(s.Text, outgoing))
		if len(text) == 0 {
			continue
		}
		own := s.Style == pulse.StylePre || s.Style == pulse.StyleQuote
		if len(f.text) > 0 && (own || block) && f.text[len(f.text)-1] != '\n' && text[0] != '\n' {
			f.text = append(f.text, '\n')
		}
		block = own
		from := len(f.text)
		f.text = append(f.text, text...)
		if s.Style != pulse.StylePlain {
			f.runs = append(f.runs, run{from: from, to: len(f.text), style: s.Style, lang: s.Lang})
		}
	}
	return f
}

// render makes at most limit messages of a neutral one. What does not fit is cut, with more as the last line saying so.
func render(m pulse.Message, limit int, more func(left int) string) []chunk {
	f := flatten(m.Spans)
	cuts := split(f.text, maxUnits)
	if len(cuts) > limit {
		left := 0
		for _, c := range cuts[limit:] {
			left += c.to - c.from
		}
		// The line is written before the last chunk is cut to make room for it; its number grows by what that takes.
		last := cuts[limit-1]
		room := maxUnits - units([]rune(more(left+maxUnits))) - 2
		short := split(f.text[last.from:last.to], room)[0]
		left += (last.to - last.from) - short.to
		end := last.from + short.to
		note := []rune("\n\n" + more(left))
		f.text = append(append([]rune{}, f.text[:end]...), note...)
		f.runs = before(f.runs, end)
		cuts = append(cuts[:limit-1:limit-1], cut{from: last.from, to: len(f.text)})
	}
	var out []chunk
	for _, c := range cuts {
		if k, ok := f.chunk(c); ok {
			out = append(out, k)
		}
	}
	return out
}

func before(runs []run, end int) []run {
	var out []run
	for _, r := range runs {
		if r.to = min(r.to, end); r.from < r.to {
			out = append(out, r)
		}
	}
	return out
}

// chunk is the part of f in c, without the space around it, which the platform would remove while leaving our offsets as they are.
// A block that is cut goes on as a block of its own in the next chunk, since it is an entity there too.
func (f flat) chunk(c cut) (chunk, bool) {
	for c.from < c.to && f.text[c.from] == '\n' {
		c.from++
	}
	for c.to > c.from && unicode.IsSpace(f.text[c.to-1]) {
		c.to--
	}
	if !visible(f.text[c.from:c.to]) {
		return chunk{}, false
	}
	out := chunk{text: string(f.text[c.from:c.to])}
	for _, r := range f.runs {
		from, to := max(r.from, c.from), min(r.to, c.to)
		for from < to && unicode.IsSpace(f.text[from]) {
			if r.style == pulse.StylePre && f.text[from] != '\n' {
				break
			}
			from++
		}
		for to > from && unicode.IsSpace(f.text[to-1]) {
			to--
		}
		if from >= to || len(out.entities) == maxEntities {
			continue
		}
		out.entities = append(out.entities, entity(r, units(f.text[c.from:from]), units(f.text[from:to])))
	}
	return out, true
}

func visible(text []rune) bool {
	for _, r := range text {
		if !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Mn, r) {
			return true
		}
	}
	return false
}

func entity(r run, offset, length int) models.MessageEntity {
	e := models.MessageEntity{Offset: offset, Length: length}
	switch r.style {
	case pulse.StyleBold:
		e.Type = models.MessageEntityTypeBold
	case pulse.StyleItalic:
		e.Type = models.MessageEntityTypeItalic
	case pulse.StyleCode:
		e.Type = models.MessageEntityTypeCode
	case pulse.StyleQuote:
		e.Type = models.MessageEntityTypeBlockquote
	default:
		e.Type, e.Language = models.MessageEntityTypePre, language(r.lang)
	}
	return e
}

// language keeps what the platform accepts as one.
func language(s string) string {
	return clip(strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("+-#_.", r)) {
			return r
		}
		return -1
	}, s), 32)
}

// keyboard leaves out what the platform would refuse the whole message for; how many were left out is answered.
func keyboard(rows [][]pulse.Button) (models.ReplyMarkup, int) {
	var out [][]models.InlineKeyboardButton
	dropped := 0
	for _, row := range rows {
		var line []models.InlineKeyboardButton
		for _, b := range row {
			label := strings.TrimSpace(clip(clean(b.Label, outgoing), maxLabel))
			if label == "" || b.Data == "" || len(b.Data) > maxButtonData || len(out) >= maxRows {
				dropped++
				continue
			}
			if len(line) == maxRow {
				out, line = append(out, line), nil
			}
			line = append(line, models.InlineKeyboardButton{Text: label, CallbackData: b.Data})
		}
		if len(line) > 0 {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		return nil, dropped
	}
	return &models.InlineKeyboardMarkup{InlineKeyboard: out}, dropped
}

// moreLine ends a message that was cut.
func moreLine(id pulse.SessionID) func(left int) string {
	return func(left int) string {
		if id == "" {
			return fmt.Sprintf("… cut here: %d more characters.", left)
		}
		return fmt.Sprintf("… cut here: %d more characters. /show %s has the rest.", left, pulse.Short(id))
	}
}
