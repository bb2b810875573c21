//! Picks a few scalar fields out of a JSON text of any size, in constant memory, as the text streams by.
//!
//! Owns: a push scanner of structure (depth, strings, escapes) that reports the scalars at wanted paths, and that
//! survives missing bytes. Refuses: building values, and validation beyond what finding the fields needs (a number or
//! an escape that nobody asked for is not checked).

mod scalar;
mod stack;
mod string;
#[cfg(test)]
mod tests;

pub use scalar::Scalar;
use stack::Stack;
use string::{StringStep, Text};

/// Longest string value that is reported whole, in bytes, unless [`JsonScan::with_limit`] says otherwise.
pub const DEFAULT_LIMIT: usize = 256;
/// Deepest nesting of arrays and objects; a deeper text has failed.
pub const MAX_DEPTH: usize = 256;
/// Longest number at a wanted path, in bytes; a longer one is not reported.
const MAX_NUMBER: usize = 128;

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value.
    Value,
    /// A value or `]`.
    ValueOrEnd,
    /// A key.
    Key,
    /// A key or `}`.
    KeyOrEnd,
    Colon,
    /// `,` or the end of the container.
    Comma,
    /// A string after which, because of a gap, anything may follow.
    AfterLost,
    /// In a string.
    Text(Then),
    Number,
    /// In `true`, `false` or `null`: which, and bytes seen.
    Literal(u8, u8),
    Done,
    Failed,
}

/// What a string is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Key,
    Value,
    /// Unknown because of a gap.
    Lost,
}

const LITERALS: [(&[u8], Scalar<'static>); 3] = [
    (b"true", Scalar::Bool(true)),
    (b"false", Scalar::Bool(false)),
    (b"null", Scalar::Null),
];

/// Push scanner. Paths are dotted, `*` stands for any array index and `0` for the first: `choices.*.message.content`.
#[derive(Debug, Clone)]
pub struct JsonScan {
    stack: Stack,
    state: State,
    /// Paths (bits) that the value under way is at.
    wanted: u64,
    text: Text,
    number: Vec<u8>,
    limit: usize,
    string_bytes: Vec<u64>,
    /// Bytes are missing: errors of grammar mean a wrong guess.
    lenient: bool,
}

impl JsonScan {
    /// A scanner for these paths. A match is reported by the path's index in this slice.
    ///
    /// # Panics
    /// With more than 64 paths, or a path of more than 32 parts: the list is part of the program.
    pub fn new(paths: &'static [&'static str]) -> JsonScan {
        JsonScan::with_limit(paths, DEFAULT_LIMIT)
    }

    /// A scanner that reports the first `limit` bytes of longer strings.
    ///
    /// # Panics
    /// As [`JsonScan::new`].
    pub fn with_limit(paths: &'static [&'static str], limit: usize) -> JsonScan {
        JsonScan::with_stack(Stack::new(paths), paths.len(), limit)
    }

    /// As [`JsonScan::with_limit`], for paths that a configuration names.
    ///
    /// # Panics
    /// As [`JsonScan::new`]: whoever reads the configuration checks that.
    pub fn of_paths(paths: &[String], limit: usize) -> JsonScan {
        JsonScan::with_stack(Stack::of_owned(paths), paths.len(), limit)
    }

    fn with_stack(stack: Stack, paths: usize, limit: usize) -> JsonScan {
        JsonScan {
            stack,
            state: State::Value,
            wanted: 0,
            text: Text::default(),
            number: Vec::new(),
            limit,
            string_bytes: vec![0; paths],
            lenient: false,
        }
    }

    /// Makes it ready for another text with the same paths: cheaper than a new one.
    pub fn reset(&mut self) {
        self.stack.clear();
        self.state = State::Value;
        self.lenient = false;
        self.string_bytes.fill(0);
    }

    /// The next bytes. `sink` gets the path's index, and the scalar.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn FnMut(usize, Scalar<'_>)) {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Text(then) => at = self.feed_text(bytes, at, then, sink),
                State::Number => at = self.feed_number(bytes, at, sink),
                State::Literal(which, seen) => {
                    let (name, value) = &LITERALS[usize::from(which)];
                    if name.get(usize::from(seen)) != Some(&bytes[at]) {
                        self.fail();
                        continue;
                    }
                    at += 1;
                    if usize::from(seen) + 1 == name.len() {
                        report(self.wanted, sink, value);
                        self.value_read();
                    } else {
                        self.state = State::Literal(which, seen + 1);
                    }
                }
                State::Failed => return,
                _ => {
                    let byte = bytes[at];
                    // After a gap the end may be an illusion, but there is no better guess: what follows is ignored.
                    let ignored = matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
                        || (self.lenient && self.state == State::Done);
                    if !ignored && !self.structure(byte) {
                        self.fail();
                        // The byte is looked at again: within a string, if that is the new guess.
                        continue;
                    }
                    at += 1;
                }
            }
        }
    }

    /// Bytes are missing. Scanning goes on under the likeliest assumption (a long string at the current depth was cut);
    /// values found afterwards are best effort. Where the text then makes no sense, it is taken for the inside of a string.
    pub fn gap(&mut self) {
        if matches!(self.state, State::Failed | State::Done) {
            return;
        }
        self.lenient = true;
        self.stack.lost();
        match self.state {
            State::Text(then) => {
                self.text.cut();
                // What looked like a key may have ended, and a value begun.
                self.state = State::Text(if then == Then::Key { Then::Lost } else { then });
            }
            _ => self.lost_string(),
        }
    }

    /// The text is complete and well-formed as far as the scanner looks; `false` before the end and after an error.
    pub fn complete(&self) -> bool {
        match self.state {
            State::Done => true,
            // Only the end of the text ends a number that stands alone.
            State::Number => self.stack.depth() == 0,
            _ => false,
        }
    }

    /// The text broke the grammar.
    pub fn failed(&self) -> bool {
        self.state == State::Failed
    }

    /// Unescaped bytes of all strings seen so far at this path (an index as given to the sink), whole, however long:
    /// the size of a prompt whose text is not kept. An escape by number, `\u` and four digits, counts as what it stands for.
    pub fn string_bytes(&self, path: usize) -> u64 {
        self.string_bytes.get(path).copied().unwrap_or(0)
    }

    /// Takes one byte of structure; `false` when it does not fit.
    fn structure(&mut self, byte: u8) -> bool {
        match (self.state, byte) {
            (State::Value | State::ValueOrEnd, _) if byte != b']' => return self.value(byte),
            (State::ValueOrEnd | State::Comma, b']') => return self.close(true),
            (State::KeyOrEnd | State::Comma, b'}') => return self.close(false),
            (State::AfterLost, b']' | b'}') => return self.close(byte == b']'),
            (State::Key | State::KeyOrEnd, b'"') => {
                let keep = self.stack.key_limit();
                self.text.start(keep);
                self.state = State::Text(Then::Key);
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterLost, b':') => {
                self.wanted = 0;
                self.stack.no_key();
                self.state = State::Value;
            }
            (State::Comma | State::AfterLost, b',') => {
                self.stack.next();
                self.state = if self.stack.in_array() {
                    State::Value
                } else {
                    State::Key
                };
            }
            _ => return false,
        }
        true
    }

    fn value(&mut self, byte: u8) -> bool {
        self.wanted = self.stack.wanted_here();
        let literal = |which| State::Literal(which, 1);
        self.state = match byte {
            b'"' => {
                self.text.start((self.wanted != 0).then_some(self.limit));
                State::Text(Then::Value)
            }
            b'{' | b'[' => {
                if !self.stack.push(byte == b'[') {
                    return false;
                }
                if byte == b'[' {
                    State::ValueOrEnd
                } else {
                    State::KeyOrEnd
                }
            }
            b't' => literal(0),
            b'f' => literal(1),
            b'n' => literal(2),
            b'-' | b'0'..=b'9' => {
                self.number.clear();
                self.number.push(byte);
                State::Number
            }
            _ => return false,
        };
        true
    }

    fn close(&mut self, array: bool) -> bool {
        if !self.stack.pop(array, self.lenient) {
            return false;
        }
        self.value_read();
        true
    }

    fn value_read(&mut self) {
        self.state = if self.stack.depth() == 0 {
            State::Done
        } else {
            State::Comma
        };
    }

    fn feed_text(
        &mut self,
        bytes: &[u8],
        at: usize,
        then: Then,
        sink: &mut dyn FnMut(usize, Scalar<'_>),
    ) -> usize {
        match self.text.feed(&bytes[at..]) {
            StringStep::More => bytes.len(),
            StringStep::Bad(used) => {
                self.fail();
                at + used
            }
            StringStep::End(used) => {
                match then {
                    Then::Key => {
                        self.stack.set_key(self.text.whole());
                        self.state = State::Colon;
                    }
                    Then::Value => {
                        if self.wanted != 0 {
                            let (text, truncated) = self.text.value();
                            report(
                                self.wanted,
                                sink,
                                &Scalar::String {
                                    text: &text,
                                    truncated,
                                },
                            );
                            for (index, sum) in self.string_bytes.iter_mut().enumerate() {
                                if self.wanted & (1 << index) != 0 {
                                    *sum = sum.saturating_add(self.text.len());
                                }
                            }
                        }
                        if self.lenient {
                            self.state = State::AfterLost;
                        } else {
                            self.value_read();
                        }
                    }
                    Then::Lost => self.state = State::AfterLost,
                }
                at + used
            }
        }
    }

    fn feed_number(&mut self, bytes: &[u8], at: usize, sink: &mut dyn FnMut(usize, Scalar<'_>)) -> usize {
        let rest = &bytes[at..];
        let run = rest
            .iter()
            .take_while(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
            .count();
        if self.wanted != 0 {
            let room = (MAX_NUMBER + 1).saturating_sub(self.number.len());
            self.number.extend_from_slice(&rest[..run.min(room)]);
        }
        if run < rest.len() {
            if self.wanted != 0 && self.number.len() <= MAX_NUMBER {
                let number = std::str::from_utf8(&self.number)
                    .ok()
                    .and_then(|n| n.parse::<f64>().ok());
                let Some(number) = number else {
                    self.fail();
                    return at + run;
                };
                report(self.wanted, sink, &Scalar::Number(number));
            }
            self.value_read();
        }
        at + run
    }

    /// The grammar was broken; after a gap that means a wrong guess, and the other guess is made.
    fn fail(&mut self) {
        if self.lenient {
            self.lost_string();
        } else {
            self.state = State::Failed;
        }
    }

    fn lost_string(&mut self) {
        self.wanted = 0;
        self.text.start(None);
        self.state = State::Text(Then::Lost);
    }
}

fn report(wanted: u64, sink: &mut dyn FnMut(usize, Scalar<'_>), scalar: &Scalar<'_>) {
    let mut left = wanted;
    while left != 0 {
        sink(left.trailing_zeros() as usize, scalar.clone());
        left &= left - 1;
    }
}
