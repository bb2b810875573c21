//! Blanks an event stream, byte by byte, in place.
//!
//! Owns: lines and fields of `text/event-stream`; `data` is handed to `json`. After missing bytes everything is blanked up
//! to the next blank line, where an event certainly begins. Refuses: anything else.

use super::json::{FILLER, JsonBlank};
use super::words::{EVENTS, Matcher, SSE_FIELDS, Words};

/// What ends an OpenAI stream; no JSON.
const DONE: Words = &["[DONE]"];

/// Push machine over one stream.
#[derive(Debug, Clone)]
pub(super) struct SseBlank {
    line: Line,
    data: Data,
    json: JsonBlank,
    facts: bool,
    after_return: bool,
}

#[derive(Debug, Clone, Copy)]
enum Line {
    Start,
    Comment,
    Field(Option<Matcher>),
    /// `lead`: the one space after the colon may still come.
    Value {
        field: Field,
        lead: bool,
    },
    /// Bytes are missing before: nothing is certain up to a blank line.
    Unsure {
        empty: bool,
    },
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Data,
    Event(Option<Matcher>),
    Other,
}

/// Place in the data of one event.
#[derive(Debug, Clone, Copy)]
enum Data {
    Fresh,
    Json,
    Done(Option<Matcher>),
}

impl SseBlank {
    /// A machine before the first line.
    pub(super) fn new() -> SseBlank {
        SseBlank {
            line: Line::Start,
            data: Data::Fresh,
            json: JsonBlank::new(),
            facts: true,
            after_return: false,
        }
    }

    /// A machine for what may be no stream at all: no fact passes.
    pub(super) fn without_facts() -> SseBlank {
        SseBlank {
            json: JsonBlank::without_facts(),
            facts: false,
            ..SseBlank::new()
        }
    }

    /// A machine somewhere in a stream.
    pub(super) fn unsure() -> SseBlank {
        let mut machine = SseBlank::new();
        machine.gap();
        machine
    }

    /// Bytes are missing.
    pub(super) fn gap(&mut self) {
        self.line = Line::Unsure { empty: false };
        self.after_return = false;
    }

    /// Answers the next byte.
    pub(super) fn byte(&mut self, byte: u8) -> u8 {
        let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
        match byte {
            b'\n' if after_return => return byte,
            b'\r' | b'\n' => {
                self.line_end();
                return byte;
            }
            _ => {}
        }
        match &mut self.line {
            Line::Unsure { empty } => {
                *empty = false;
                FILLER
            }
            Line::Comment => FILLER,
            Line::Start if byte == b':' => {
                self.line = Line::Comment;
                byte
            }
            Line::Start => {
                // The core takes a body that begins with a small letter for a stream, so the filler is one too.
                let mut matcher = Matcher::new(SSE_FIELDS, false);
                let passes = matcher.step(byte);
                self.line = Line::Field(passes.then_some(matcher));
                if passes { byte } else { FILLER }
            }
            Line::Field(matcher) if byte == b':' => {
                let field = match matcher.and_then(|m| m.matched()).map(|index| SSE_FIELDS[index]) {
                    Some("data") => Field::Data,
                    Some("event") => Field::Event(Some(Matcher::new(EVENTS, false))),
                    _ => Field::Other,
                };
                self.line = Line::Value { field, lead: true };
                byte
            }
            Line::Field(matcher) => {
                if matcher.as_mut().is_some_and(|m| m.step(byte)) {
                    byte
                } else {
                    *matcher = None;
                    FILLER
                }
            }
            Line::Value { lead, .. } if *lead && byte == b' ' => {
                *lead = false;
                byte
            }
            Line::Value { field, lead } => {
                *lead = false;
                match field {
                    Field::Data => self.data(byte),
                    Field::Event(matcher) => {
                        if matcher.as_mut().is_some_and(|m| m.step(byte)) {
                            byte
                        } else {
                            *matcher = None;
                            FILLER
                        }
                    }
                    Field::Other => FILLER,
                }
            }
        }
    }

    fn data(&mut self, byte: u8) -> u8 {
        if let Data::Fresh = self.data {
            self.data = if byte == b'[' {
                Data::Done(Some(Matcher::new(DONE, false)))
            } else {
                Data::Json
            };
        }
        match &mut self.data {
            Data::Fresh | Data::Json => self.json.byte(byte),
            Data::Done(matcher) => {
                if matcher.as_mut().is_some_and(|m| m.step(byte)) {
                    byte
                } else {
                    *matcher = None;
                    FILLER
                }
            }
        }
    }

    fn line_end(&mut self) {
        let blank = matches!(self.line, Line::Start | Line::Unsure { empty: true });
        match self.line {
            Line::Unsure { empty: false } => self.line = Line::Unsure { empty: true },
            Line::Value {
                field: Field::Data, ..
            } => {
                // Lines of one event are joined by line feeds. A string can't hold one: this is no stream, or the rest of
                // one whose chunk framing is not known.
                if self.json.in_string() {
                    self.json.fail();
                } else if let Data::Json = self.data {
                    self.json.byte(b'\n');
                }
                self.line = Line::Start;
            }
            _ => self.line = Line::Start,
        }
        if blank {
            self.line = Line::Start;
            self.data = Data::Fresh;
            self.json = if self.facts {
                JsonBlank::new()
            } else {
                JsonBlank::without_facts()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(parts: &[&str], expected: &Expect) {
        let mut machine = SseBlank::new();
        let mut out = String::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                machine.gap();
                out.push('~');
            }
            out.extend(part.bytes().map(|b| char::from(machine.byte(b))));
        }
        expected.assert_eq(&out.replace('\r', "\\r"));
    }

    #[test]
    fn events_keep_their_framing_and_facts() {
        check(
            &[
                "event: message_start\ndata: {\"type\":\"message_start\",\"text\":\"hi\"}\n\n: ping secret\nid: 7\nretry: 10\nsecret: a\nsecret\n\n\
               data:{\"model\":\"m\",\ndata: \"text\":\"hi\"}\n\ndata: [DONE]\n\ndata: [secret]\n\ndata: secret\n\ndata: {\"n\":1}\n\n",
            ],
            &expect![[r#"
                event: message_start
                data: {"type":"message_start","text":"xx"}

                :xxxxxxxxxxxx
                id: x
                retry: xx
                xxxxxx: x
                xxxxxx

                data:{"model":"m",
                data: "text":"xx"}

                data: [DONE]

                data: [xxxxxxx

                data: xxxxxx

                data: {"n":1}

            "#]],
        );
    }

    #[test]
    fn every_line_end_ends_a_line() {
        check(
            &["data: {\"text\":\"a\"}\r\n\r\ndata: {\"text\":\"b\"}\r\rdata: {\"id\":\"c\"}\r\n\r\n"],
            &expect![[r#"
                data: {"text":"x"}\r
                \r
                data: {"text":"x"}\r\rdata: {"id":"c"}\r
                \r
            "#]],
        );
    }

    #[test]
    fn a_string_that_a_line_end_cuts_passes_nothing_more() {
        check(
            &[
                "data: {\"finish_reason\":\"s\r\n1a\r\ndata: secret\",\"model\":\"m\"}\n\ndata: {\"model\":\"m\"}\n\n",
            ],
            &expect![[r#"
                data: {"finish_reason":"s\r
                xx\r
                data: xxxxxxxxxxxxxxxxxxxx

                data: {"model":"m"}

            "#]],
        );
    }

    #[test]
    fn after_a_gap_nothing_passes_before_a_blank_line() {
        check(
            &[
                "data: {\"id\":\"a",
                "\ndata: {\"id\":\"secret\"}\n\ndata: {\"id\":\"c\"}\n\n",
            ],
            &expect![[r#"
                data: {"id":"a~
                xxxxxxxxxxxxxxxxxxxxx

                data: {"id":"c"}

            "#]],
        );
    }
}
