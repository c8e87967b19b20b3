package pulse

import "errors"

// Code classes an error once for every surface: it maps to one HTTP status,
// one exit code and one chat wording.
type Code string

const (
	CodeInvalid      Code = "invalid"       // the request is wrong as it stands
	CodeNotFound     Code = "not_found"     // the thing named does not exist
	CodeConflict     Code = "conflict"      // the state does not allow it
	CodeUnauthorized Code = "unauthorized"  // no or wrong credentials
	CodeForbidden    Code = "forbidden"     // known, but not allowed
	CodeUnprocessed  Code = "unprocessable" // well formed, but cannot be done
	CodeTooLarge     Code = "too_large"
	CodeRateLimited  Code = "rate_limited"
	CodeUnavailable  Code = "unavailable" // try again later
	CodeInternal     Code = "internal"
)

// Error is what people see of a failure: Message says what is wrong, Hint
// what to do about it. Err is for the logs alone.
type Error struct {
	Code    Code
	Message string
	Hint    string
	Err     error
}

// Error joins message, hint and cause into one line for logs and terminals.
func (e *Error) Error() string {
	s := e.Message
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first Error in err's chain, CodeInternal
// for any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Invalid is short for an Error of CodeInvalid.
func Invalid(message, hint string) *Error {
	return &Error{Code: CodeInvalid, Message: message, Hint: hint}
}

// NotFound is short for an Error of CodeNotFound.
func NotFound(message, hint string) *Error {
	return &Error{Code: CodeNotFound, Message: message, Hint: hint}
}

// Conflict is short for an Error of CodeConflict.
func Conflict(message, hint string) *Error {
	return &Error{Code: CodeConflict, Message: message, Hint: hint}
}

// Sentinels are for control flow between a decision and the store; people
// never see them.
var (
	// ErrStale: the guard of a change no longer holds; read again and decide again.
	ErrStale = errors.New("the record changed meanwhile")
	// ErrFenced: the claim a write was made under is no longer the live one.
	ErrFenced = errors.New("the claim is no longer held")
	// ErrDone: the inbound update was handled before; drop this handling of it.
	ErrDone = errors.New("the update was handled before")
	// ErrNone: there is nothing (due, queued, matching) at present.
	ErrNone = errors.New("nothing there")
)
