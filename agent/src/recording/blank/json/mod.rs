//! Blanks the strings of JSON text, byte by byte, in place.
//!
//! Owns: a push machine over JSON's grammar that answers each byte with one byte. Valid text stays valid and broken
//! text stays broken; structure, listed names and facts pass, everything else is filler. Refuses: building values, and
//! any byte that it is not certain about.

#[cfg(test)]
mod tests;

use super::members::{MEMBER_NAMES, MEMBERS, Member, REASONS};
use super::words::{LITERALS, Matcher};

/// Deepest nesting that is followed; deeper text is blanked whole.
const MAX_DEPTH: u8 = 128;
/// Longest string that passes as a fact.
pub(super) const MAX_FACT: u16 = 256;
/// Stands for a byte of a value.
pub(super) const FILLER: u8 = b'x';
/// Stands for a byte of a name (no listed name ends with it, so none can arise).
pub(super) const NAME_FILLER: u8 = b'_';
/// Stands for a digit: a run of these is a number wherever the digits were one.
const DIGIT_FILLER: u8 = b'1';

/// Push machine over one body; several texts may follow one another (newline-delimited JSON).
#[derive(Debug, Clone)]
pub(super) struct JsonBlank {
    state: State,
    depth: u8,
    /// Per level: an array, not an object.
    arrays: u128,
    /// Per level: every container up to here is listed, so facts pass.
    open: u128,
    /// What passes of the value that comes next or is under way.
    member: Member,
    /// What passes of each text.
    root: Member,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Value,
    FirstElement,
    FirstName,
    Name,
    Colon,
    After,
    String { pass: Pass, escape: Escape },
    Number { pass: bool },
    Literal(Matcher),
    Failed,
}

/// What a string's bytes are checked against.
#[derive(Debug, Clone, Copy)]
enum Pass {
    /// A member's name, so far on the list.
    Name(Matcher),
    /// A member's name that is not.
    OtherName,
    /// A fact of this length so far.
    Fact(u16),
    Reason(Matcher),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    Backslash,
    /// Hexadecimal digits seen of `\u` and four.
    Unicode(u8),
}

impl JsonBlank {
    /// A machine before the first byte of a text.
    pub(super) fn new() -> JsonBlank {
        JsonBlank {
            state: State::Value,
            depth: 0,
            arrays: 0,
            open: 0,
            member: Member::Container,
            root: Member::Container,
        }
    }

    /// As [`JsonBlank::new`], passing no fact.
    pub(super) fn without_facts() -> JsonBlank {
        JsonBlank {
            member: Member::Opaque,
            root: Member::Opaque,
            ..JsonBlank::new()
        }
    }

    /// Nothing is certain any more, to the end of the text.
    pub(super) fn fail(&mut self) {
        self.state = State::Failed;
    }

    /// Whether the text stands within a string.
    pub(super) fn in_string(&self) -> bool {
        matches!(self.state, State::String { .. })
    }

    /// Answers the next byte.
    pub(super) fn byte(&mut self, byte: u8) -> u8 {
        match self.state {
            State::Failed => FILLER,
            State::String { pass, escape } => self.string(byte, pass, escape),
            State::Number { pass } => match byte {
                b'0'..=b'9' => {
                    if pass {
                        byte
                    } else {
                        DIGIT_FILLER
                    }
                }
                b'.' | b'e' | b'E' | b'+' | b'-' => byte,
                _ => {
                    self.state = State::After;
                    self.structure(byte)
                }
            },
            State::Literal(mut matcher) => {
                if matcher.step(byte) {
                    self.state = State::Literal(matcher);
                    byte
                } else if matcher.stopped_after() {
                    self.state = State::After;
                    self.structure(byte)
                } else {
                    self.failed()
                }
            }
            _ => self.structure(byte),
        }
    }

    fn structure(&mut self, byte: u8) -> u8 {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return byte;
        }
        match (self.state, byte) {
            (State::FirstElement, b']') | (State::FirstName, b'}') => self.close(byte),
            (State::FirstName | State::Name, b'"') => {
                self.state = State::String {
                    pass: Pass::Name(Matcher::new(MEMBER_NAMES, false)),
                    escape: Escape::None,
                };
                byte
            }
            (State::Colon, b':') => {
                self.state = State::Value;
                byte
            }
            (State::After, b',') if self.depth > 0 => {
                if self.in_array() {
                    self.member = self.element();
                    self.state = State::Value;
                } else {
                    self.state = State::Name;
                }
                byte
            }
            (State::After, b']' | b'}') if self.depth > 0 && self.in_array() == (byte == b']') => {
                self.close(byte)
            }
            // The next text of several.
            (State::After, _) if self.depth == 0 => {
                self.member = self.root;
                self.value(byte)
            }
            (State::Value | State::FirstElement, _) => self.value(byte),
            _ => self.failed(),
        }
    }

    fn value(&mut self, byte: u8) -> u8 {
        match byte {
            b'{' | b'[' => {
                if self.depth == MAX_DEPTH {
                    return self.failed();
                }
                let open = match self.member {
                    Member::Container => true,
                    Member::RootContainer => self.depth == 1,
                    Member::Opaque | Member::Fact | Member::Reason => false,
                };
                let bit = 1u128 << self.depth;
                self.arrays = if byte == b'[' {
                    self.arrays | bit
                } else {
                    self.arrays & !bit
                };
                self.open = if open { self.open | bit } else { self.open & !bit };
                self.depth += 1;
                self.member = self.element();
                self.state = if byte == b'[' {
                    State::FirstElement
                } else {
                    State::FirstName
                };
                byte
            }
            b'"' => {
                self.state = State::String {
                    pass: match self.member {
                        Member::Fact => Pass::Fact(0),
                        Member::Reason => Pass::Reason(Matcher::new(REASONS, false)),
                        Member::Opaque | Member::Container | Member::RootContainer => Pass::Nothing,
                    },
                    escape: Escape::None,
                };
                byte
            }
            b'-' | b'0'..=b'9' => {
                let pass = self.member == Member::Fact;
                self.state = State::Number { pass };
                if pass || byte == b'-' { byte } else { DIGIT_FILLER }
            }
            b't' | b'f' | b'n' => {
                let mut matcher = Matcher::new(LITERALS, false);
                matcher.step(byte);
                self.state = State::Literal(matcher);
                byte
            }
            _ => self.failed(),
        }
    }

    fn string(&mut self, byte: u8, pass: Pass, escape: Escape) -> u8 {
        let mut pass = pass;
        let (escape, answer) = match escape {
            Escape::None => match byte {
                b'"' => {
                    self.end_string(pass);
                    return byte;
                }
                b'\\' => (Escape::Backslash, byte),
                // A raw control character makes the text invalid; it stays invalid.
                0..=0x1f => {
                    pass.refuse();
                    (Escape::None, 0x01)
                }
                _ => (Escape::None, pass.byte(byte)),
            },
            Escape::Backslash => match byte {
                b'u' => {
                    pass.refuse();
                    (Escape::Unicode(0), byte)
                }
                b'/' => (Escape::None, if pass.byte(byte) == byte { byte } else { b'n' }),
                b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => {
                    pass.refuse();
                    (Escape::None, b'n')
                }
                _ => {
                    pass.refuse();
                    (Escape::None, FILLER)
                }
            },
            Escape::Unicode(seen) => {
                let next = if seen == 3 {
                    Escape::None
                } else {
                    Escape::Unicode(seen + 1)
                };
                // `\u0078` is an x. What is no digit stays none.
                let digit = b"0078"[usize::from(seen & 3)];
                (next, if byte.is_ascii_hexdigit() { digit } else { FILLER })
            }
        };
        self.state = State::String { pass, escape };
        answer
    }

    fn end_string(&mut self, pass: Pass) {
        let listed = match pass {
            Pass::Name(matcher) => matcher.matched(),
            Pass::OtherName => None,
            Pass::Fact(_) | Pass::Reason(_) | Pass::Nothing => {
                self.state = State::After;
                return;
            }
        };
        self.member = match listed {
            Some(index) if self.is_open() => MEMBERS[index].1,
            _ => Member::Opaque,
        };
        self.state = State::Colon;
    }

    fn close(&mut self, byte: u8) -> u8 {
        self.depth -= 1;
        self.state = State::After;
        byte
    }

    fn failed(&mut self) -> u8 {
        self.state = State::Failed;
        FILLER
    }

    fn level(&self) -> u128 {
        1u128 << self.depth.saturating_sub(1).min(MAX_DEPTH - 1)
    }

    fn in_array(&self) -> bool {
        self.arrays & self.level() != 0
    }

    fn is_open(&self) -> bool {
        self.open & self.level() != 0
    }

    /// What passes of an array's elements: objects are judged by their members' names, scalars never pass.
    fn element(&self) -> Member {
        if self.is_open() {
            Member::Container
        } else {
            Member::Opaque
        }
    }
}

impl Pass {
    fn byte(&mut self, byte: u8) -> u8 {
        let passes = match self {
            Pass::Name(matcher) | Pass::Reason(matcher) => matcher.step(byte),
            Pass::OtherName | Pass::Nothing => false,
            Pass::Fact(len) => {
                *len += 1;
                *len <= MAX_FACT && is_identifier(byte)
            }
        };
        if passes {
            return byte;
        }
        self.refuse();
        if matches!(self, Pass::OtherName) {
            NAME_FILLER
        } else {
            FILLER
        }
    }

    fn refuse(&mut self) {
        *self = match self {
            Pass::Name(_) | Pass::OtherName => Pass::OtherName,
            Pass::Fact(_) | Pass::Reason(_) | Pass::Nothing => Pass::Nothing,
        };
    }
}

/// Whether an id may hold it.
pub(super) fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'@' | b'+')
}
