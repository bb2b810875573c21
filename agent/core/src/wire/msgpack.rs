//! MessagePack values, read where they lie.
//!
//! Owns: a cursor over one message that reads, or steps over, one value at a time, without recursion and without a
//! copy. Refuses: building values, and what their positions mean (`engine`).

use rmp::{Marker, decode};

/// What kind of value comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Bool,
    /// Any integer.
    Int,
    /// Either float.
    Float,
    /// Text.
    Str,
    /// Bytes.
    Bin,
    /// A list.
    Array,
    /// Keys and values.
    Map,
    /// An extension type.
    Ext,
}

/// Why a value could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MsgpackError {
    /// The message ends within the value.
    #[error("the message ends within a value")]
    Truncated,
    /// Another kind of value.
    #[error("{found:?} where {wanted:?} was expected")]
    Kind {
        /// What the reader asked for.
        wanted: Kind,
        /// What is there.
        found: Kind,
    },
    /// The one marker byte that MessagePack never uses.
    #[error("a marker byte that is never used")]
    Reserved,
    /// Text that is not UTF-8.
    #[error("text that is not UTF-8")]
    NotUtf8,
    /// An integer beyond 64 bits signed.
    #[error("an integer out of range")]
    Range,
}

/// A cursor over one message.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The kind of the next value.
    pub fn peek(&self) -> Result<Kind, MsgpackError> {
        let marker = Marker::from_u8(*self.rest.first().ok_or(MsgpackError::Truncated)?);
        kind(marker).ok_or(MsgpackError::Reserved)
    }

    /// Steps over a `nil`; `false`, and nothing read, when something else comes.
    pub fn nil(&mut self) -> Result<bool, MsgpackError> {
        let nil = self.peek()? == Kind::Nil;
        if nil {
            self.rest = &self.rest[1..];
        }
        Ok(nil)
    }

    /// A boolean.
    pub fn bool(&mut self) -> Result<bool, MsgpackError> {
        self.expect(Kind::Bool)?;
        decode::read_bool(&mut self.rest).map_err(|_| MsgpackError::Truncated)
    }

    /// An integer of any width.
    pub fn int(&mut self) -> Result<i64, MsgpackError> {
        self.expect(Kind::Int)?;
        decode::read_int(&mut self.rest).map_err(|e| match e {
            decode::NumValueReadError::OutOfRange => MsgpackError::Range,
            _ => MsgpackError::Truncated,
        })
    }

    /// A float of either width.
    pub fn float(&mut self) -> Result<f64, MsgpackError> {
        self.expect(Kind::Float)?;
        let wide = self.rest.first() == Some(&Marker::F64.to_u8());
        if wide {
            decode::read_f64(&mut self.rest).map_err(|_| MsgpackError::Truncated)
        } else {
            decode::read_f32(&mut self.rest)
                .map(f64::from)
                .map_err(|_| MsgpackError::Truncated)
        }
    }

    /// Text.
    pub fn str(&mut self) -> Result<&'a str, MsgpackError> {
        self.expect(Kind::Str)?;
        let len = decode::read_str_len(&mut self.rest).map_err(|_| MsgpackError::Truncated)?;
        std::str::from_utf8(self.take(u64::from(len))?).map_err(|_| MsgpackError::NotUtf8)
    }

    /// The header of an array: how many values follow.
    pub fn array(&mut self) -> Result<u32, MsgpackError> {
        self.expect(Kind::Array)?;
        decode::read_array_len(&mut self.rest).map_err(|_| MsgpackError::Truncated)
    }

    /// The header of a map: how many pairs follow.
    pub fn map(&mut self) -> Result<u32, MsgpackError> {
        self.expect(Kind::Map)?;
        decode::read_map_len(&mut self.rest).map_err(|_| MsgpackError::Truncated)
    }

    /// Steps over one value and all that it holds. Counts what is left instead of recursing, so that no nesting costs
    /// stack; the message's length bounds the work.
    pub fn skip(&mut self) -> Result<(), MsgpackError> {
        let mut left: u64 = 1;
        while left > 0 {
            left -= 1;
            let marker = decode::read_marker(&mut self.rest).map_err(|_| MsgpackError::Truncated)?;
            let (bytes, values) = match marker {
                Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => (0, 0),
                Marker::U8 | Marker::I8 => (1, 0),
                // An extension has a byte for its type before its data.
                Marker::U16 | Marker::I16 | Marker::FixExt1 => (2, 0),
                Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
                Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
                Marker::FixStr(len) => (u64::from(len), 0),
                Marker::Str8 | Marker::Bin8 => (self.number(1)?, 0),
                Marker::Str16 | Marker::Bin16 => (self.number(2)?, 0),
                Marker::Str32 | Marker::Bin32 => (self.number(4)?, 0),
                Marker::FixExt2 => (3, 0),
                Marker::FixExt4 => (5, 0),
                Marker::FixExt8 => (9, 0),
                Marker::FixExt16 => (17, 0),
                Marker::Ext8 => (self.number(1)? + 1, 0),
                Marker::Ext16 => (self.number(2)? + 1, 0),
                Marker::Ext32 => (self.number(4)? + 1, 0),
                Marker::FixArray(len) => (0, u64::from(len)),
                Marker::Array16 => (0, self.number(2)?),
                Marker::Array32 => (0, self.number(4)?),
                Marker::FixMap(len) => (0, 2 * u64::from(len)),
                Marker::Map16 => (0, 2 * self.number(2)?),
                Marker::Map32 => (0, 2 * self.number(4)?),
                Marker::Reserved => return Err(MsgpackError::Reserved),
            };
            self.take(bytes)?;
            left = left.saturating_add(values);
        }
        Ok(())
    }

    fn expect(&self, wanted: Kind) -> Result<(), MsgpackError> {
        let found = self.peek()?;
        if found == wanted {
            Ok(())
        } else {
            Err(MsgpackError::Kind { wanted, found })
        }
    }

    fn number(&mut self, width: u64) -> Result<u64, MsgpackError> {
        Ok(self
            .take(width)?
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], MsgpackError> {
        let len = usize::try_from(len).map_err(|_| MsgpackError::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(MsgpackError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn kind(marker: Marker) -> Option<Kind> {
    Some(match marker {
        Marker::Null => Kind::Nil,
        Marker::True | Marker::False => Kind::Bool,
        Marker::FixPos(_)
        | Marker::FixNeg(_)
        | Marker::U8
        | Marker::U16
        | Marker::U32
        | Marker::U64
        | Marker::I8
        | Marker::I16
        | Marker::I32
        | Marker::I64 => Kind::Int,
        Marker::F32 | Marker::F64 => Kind::Float,
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => Kind::Str,
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => Kind::Bin,
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => Kind::Array,
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => Kind::Map,
        Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => Kind::Ext,
        Marker::Reserved => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_of_every_width_are_read() {
        let ints: &[(&[u8], i64)] = &[
            (&[0x07], 7),
            (&[0xff], -1),
            (&[0xcc, 200], 200),
            (&[0xcd, 1, 0], 256),
            (&[0xce, 0, 1, 0, 0], 65_536),
            (&[0xcf, 0, 0, 0, 1, 0, 0, 0, 0], 1 << 32),
            (&[0xd0, 0x80], -128),
            (&[0xd1, 0xff, 0], -256),
            (&[0xd2, 0xff, 0xff, 0, 0], -65_536),
            (&[0xd3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], -(1 << 32)),
        ];
        for (bytes, value) in ints {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.int(), Ok(*value));
            assert!(reader.rest().is_empty());
        }
        assert_eq!(
            Reader::new(&[0xcf, 255, 0, 0, 0, 0, 0, 0, 0]).int(),
            Err(MsgpackError::Range)
        );
        assert_eq!(
            Reader::new(&[0xcb, 0x3f, 0xd0, 0, 0, 0, 0, 0, 0]).float(),
            Ok(0.25)
        );
        assert_eq!(Reader::new(&[0xca, 0x3e, 0x80, 0, 0]).float(), Ok(0.25));
        assert_eq!(Reader::new(&[0xd9, 2, b'h', b'i']).str(), Ok("hi"));
        assert_eq!(Reader::new(&[0xa2, b'h', b'i']).str(), Ok("hi"));
        assert_eq!(Reader::new(&[0xdc, 1, 2]).array(), Ok(258));
        assert_eq!(Reader::new(&[0x83]).map(), Ok(3));
        assert_eq!(Reader::new(&[0xc3]).bool(), Ok(true));
        assert_eq!(Reader::new(&[0xc0]).nil(), Ok(true));
        assert_eq!(Reader::new(&[0xc2]).nil(), Ok(false));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let wanted = |wanted, found| Some(MsgpackError::Kind { wanted, found });
        assert_eq!(Reader::new(&[0xc0]).int().err(), wanted(Kind::Int, Kind::Nil));
        assert_eq!(Reader::new(&[0x01]).float().err(), wanted(Kind::Float, Kind::Int));
        assert_eq!(Reader::new(&[0xc1]).peek(), Err(MsgpackError::Reserved));
        assert_eq!(Reader::new(&[0xc1]).skip(), Err(MsgpackError::Reserved));
        assert_eq!(Reader::new(&[0xa2, b'h']).str(), Err(MsgpackError::Truncated));
        assert_eq!(Reader::new(&[0xa1, 0xff]).str(), Err(MsgpackError::NotUtf8));
        assert_eq!(Reader::new(&[]).peek(), Err(MsgpackError::Truncated));
        assert_eq!(
            Reader::new(&[0xdd, 255, 255, 255, 255, 0]).skip(),
            Err(MsgpackError::Truncated)
        );
    }

    #[test]
    fn skipping_ends_behind_the_value() {
        let value: &[u8] = &[
            0x93, 0x82, 0xa1, b'k', 0xc4, 2, 9, 9, 0x01, 0xd4, 5, 6, 0xc7, 1, 3, 4, 0xcb, 0, 0, 0, 0, 0, 0,
            0, 0,
        ];
        let mut bytes = value.to_vec();
        bytes.push(0x2a);
        let mut reader = Reader::new(&bytes);
        reader.skip().expect("whole");
        assert_eq!(reader.int(), Ok(42));
        for len in 0..value.len() {
            assert_eq!(
                Reader::new(&value[..len]).skip(),
                Err(MsgpackError::Truncated),
                "{len}"
            );
        }
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = vec![0x91; 4_000_000];
        assert_eq!(Reader::new(&deep).skip(), Err(MsgpackError::Truncated));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes);
            while reader.skip().is_ok() {}
            for read in [
                |r: &mut Reader<'_>| r.int().is_ok(),
                |r: &mut Reader<'_>| r.float().is_ok(),
                |r: &mut Reader<'_>| r.str().is_ok(),
                |r: &mut Reader<'_>| r.array().is_ok(),
                |r: &mut Reader<'_>| r.map().is_ok(),
                |r: &mut Reader<'_>| r.bool().is_ok(),
            ] {
                let mut reader = Reader::new(&bytes);
                let _ = read(&mut reader);
                prop_assert!(reader.rest().len() <= bytes.len());
            }
        }
    }
}
