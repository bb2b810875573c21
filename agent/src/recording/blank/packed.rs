//! Blanks one MessagePack value, byte by byte, by what its places may tell.
//!
//! Owns: walking the value with a bounded stack, and what stands in for what is blanked. Kinds, lengths and counts stay,
//! so a reader finds every value where it was. Refuses: knowing what is harmless (the core's `Place`), and going on behind
//! anything that does not fit: zeros from there.

use super::json::{MAX_FACT, is_identifier};
use super::words::Matcher;
use infertap_core::engine::vllm::{Passes, Place};
use infertap_core::wire::msgpack::{Kind, Shape};

/// Values within values; vLLM's messages have some six.
const MAX_DEPTH: usize = 32;
/// Stand-in for a byte of text.
const FILLER: u8 = b'x';
/// Stand-in for a byte of an integer that is not negative.
const INT_FILLER: u8 = 1;
/// Stand-in for a small negative integer: -1.
const NEGATIVE_FILLER: u8 = 0xff;
const FALSE: u8 = 0xc2;

/// State within one value.
#[derive(Debug)]
pub(super) struct PackedBlank {
    top: Place,
    open: Vec<Open>,
    state: State,
}

/// An array or map that has begun.
#[derive(Debug)]
struct Open {
    place: Place,
    map: bool,
    /// Values before the next one, names included.
    index: u64,
    /// Values in all, names included.
    count: u64,
    /// The name before the next value, by its index among the place's.
    member: Option<usize>,
}

#[derive(Debug)]
enum State {
    /// At a value's first byte.
    Value,
    /// Within a value's length.
    Length {
        kind: Kind,
        what: What,
        left: u64,
        extent: u64,
    },
    /// Within a value's data.
    Data { what: Data, left: u64 },
    /// Behind the value.
    Done,
    /// It did not fit.
    Failed,
}

/// Where a value stands.
#[derive(Debug, Clone, Copy)]
enum What {
    Place(Place),
    /// It is a name in a map that has such names.
    Name(&'static [&'static str]),
}

#[derive(Debug)]
enum Data {
    Pass,
    Fill(u8),
    Id(u16),
    Name(Matcher),
}

impl PackedBlank {
    /// Before a value that stands there.
    pub(super) fn new(top: Place) -> PackedBlank {
        PackedBlank {
            top,
            open: Vec::new(),
            state: State::Value,
        }
    }

    /// One whole value was walked, and nothing came behind it.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Blanks the next bytes.
    pub(super) fn feed(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.byte(*byte);
        }
    }

    fn byte(&mut self, byte: u8) -> u8 {
        match &mut self.state {
            State::Value => self.first(byte),
            State::Length {
                kind,
                what,
                left,
                extent,
            } => {
                // A length has four bytes at most, and begins with what an extension has before its data.
                *extent = *extent << 8 | u64::from(byte);
                *left -= 1;
                if *left == 0 {
                    let (kind, what, mut extent) = (*kind, *what, *extent);
                    if kind == Kind::Ext {
                        extent += 1;
                    }
                    self.extent(kind, what, extent);
                }
                byte
            }
            State::Data { what, left } => {
                let answer = what.byte(byte);
                *left -= 1;
                if *left == 0 {
                    let name = match what {
                        Data::Name(matcher) => matcher.matched(),
                        _ => None,
                    };
                    self.value_done(name);
                }
                answer
            }
            State::Done | State::Failed => {
                self.state = State::Failed;
                0
            }
        }
    }

    /// The first byte of a value.
    fn first(&mut self, byte: u8) -> u8 {
        let what = match self.open.last() {
            None => What::Place(self.top),
            Some(open) if !open.map => What::Place(open.place.item(open.index)),
            Some(open) if open.index.is_multiple_of(2) => What::Name(open.place.names()),
            Some(open) => What::Place(open.place.member(open.member)),
        };
        let Some(shape) = Shape::of(byte) else {
            self.state = State::Failed;
            return 0;
        };
        let passes = match what {
            What::Place(place) => place.passes(),
            What::Name(_) => Passes::Nothing,
        };
        // Small integers and truth values are in their first byte.
        let answer = match shape.kind {
            Kind::Int if shape.fixed == 0 && passes != Passes::Numbers => {
                if byte < 0x80 {
                    INT_FILLER
                } else {
                    NEGATIVE_FILLER
                }
            }
            Kind::Bool if passes != Passes::Numbers => FALSE,
            _ => byte,
        };
        if let What::Place(place) = what
            && !place.admits(shape.kind)
        {
            self.state = State::Failed;
            return answer;
        }
        if shape.length_bytes > 0 {
            self.state = State::Length {
                kind: shape.kind,
                what,
                left: shape.length_bytes,
                extent: 0,
            };
        } else {
            self.extent(shape.kind, what, shape.fixed);
        }
        answer
    }

    /// How much a value holds is known.
    fn extent(&mut self, kind: Kind, what: What, extent: u64) {
        if let Kind::Array | Kind::Map = kind {
            // A name that holds values is none that we know, and neither are they.
            let place = match what {
                What::Place(place) => place.open(extent),
                What::Name(_) => Some(Place::content()),
            };
            match place {
                Some(place) if self.open.len() < MAX_DEPTH => {
                    let map = kind == Kind::Map;
                    self.open.push(Open {
                        place,
                        map,
                        index: 0,
                        count: if map { 2 * extent } else { extent },
                        member: None,
                    });
                    self.settle();
                }
                _ => self.state = State::Failed,
            }
            return;
        }
        if extent == 0 {
            return self.value_done(None);
        }
        let what = match (what, kind) {
            (What::Name(names), Kind::Str) if names.iter().any(|name| name.len() as u64 == extent) => {
                Data::Name(Matcher::new(names, false))
            }
            (What::Place(place), Kind::Int | Kind::Float) if place.passes() == Passes::Numbers => Data::Pass,
            (What::Place(place), Kind::Str) if place.passes() == Passes::Id => Data::Id(0),
            (_, Kind::Str) => Data::Fill(FILLER),
            (_, Kind::Int) => Data::Fill(INT_FILLER),
            _ => Data::Fill(0),
        };
        self.state = State::Data { what, left: extent };
    }

    /// A value is over; `name`: it was this one of the names that its map may have.
    fn value_done(&mut self, name: Option<usize>) {
        if let Some(open) = self.open.last_mut() {
            open.member = name;
            open.index += 1;
        }
        self.settle();
    }

    /// Leaves what is complete.
    fn settle(&mut self) {
        loop {
            match self.open.last_mut() {
                None => {
                    self.state = State::Done;
                    return;
                }
                Some(open) if open.index < open.count => {
                    self.state = State::Value;
                    return;
                }
                Some(_) => {
                    self.open.pop();
                    if let Some(outer) = self.open.last_mut() {
                        outer.member = None;
                        outer.index += 1;
                    }
                }
            }
        }
    }
}

impl Data {
    fn byte(&mut self, byte: u8) -> u8 {
        let passes = match self {
            Data::Pass => true,
            Data::Fill(filler) => return *filler,
            Data::Id(len) => {
                *len += 1;
                *len <= MAX_FACT && is_identifier(byte)
            }
            Data::Name(matcher) => matcher.step(byte),
        };
        if passes {
            byte
        } else {
            *self = Data::Fill(FILLER);
            FILLER
        }
    }
}
