// Package decode turns the bytes of a record's value into what jq programs see.
//
// JSON is read strictly, because a message that is read leniently would be sent on changed: invalid UTF-8 and escaped
// lone surrogates are refused and never become U+FFFD, a second document or trailing text is refused, and numbers keep
// their text. What can't be decoded is an *Error; whether that matters depends on whether anything reads the value.
package decode
