//! MessagePack values, read where they lie.
//!
//! Owns: a cursor over one message that reads, or steps over, one value at a time, without recursion and without a
//! copy. Refuses: building values, and what their positions mean (`engine`).

#[cfg(test)]
mod tests;

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
        let first = self.rest.first().ok_or(MsgpackError::Truncated)?;
        Ok(Shape::of(*first).ok_or(MsgpackError::Reserved)?.kind)
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

    /// Bytes.
    pub fn bin(&mut self) -> Result<&'a [u8], MsgpackError> {
        self.expect(Kind::Bin)?;
        let len = decode::read_bin_len(&mut self.rest).map_err(|_| MsgpackError::Truncated)?;
        self.take(u64::from(len))
    }

    /// An extension: its type, and its data.
    pub fn ext(&mut self) -> Result<(i8, &'a [u8]), MsgpackError> {
        self.expect(Kind::Ext)?;
        let meta = decode::read_ext_meta(&mut self.rest).map_err(|_| MsgpackError::Truncated)?;
        Ok((meta.typeid, self.take(u64::from(meta.size))?))
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
            let (first, rest) = self.rest.split_first().ok_or(MsgpackError::Truncated)?;
            self.rest = rest;
            let shape = Shape::of(*first).ok_or(MsgpackError::Reserved)?;
            let extent = shape.fixed + self.number(shape.length_bytes)?;
            let (bytes, values) = match shape.kind {
                Kind::Array => (0, extent),
                Kind::Map => (0, 2 * extent),
                _ => (extent, 0),
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

/// What the first byte of a value says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Its kind.
    pub kind: Kind,
    /// Bytes of a length (of an array: a count; of a map: of pairs) that follow, the most significant first.
    pub length_bytes: u64,
    /// Its extent, but for that length: bytes of its data, values of an array, pairs of a map.
    pub fixed: u64,
}

impl Shape {
    /// Of a value that begins with this byte; `None` for the one that no value begins with.
    pub fn of(first: u8) -> Option<Shape> {
        use Kind::{Array, Bin, Bool, Ext, Float, Int, Map, Nil, Str};
        let (kind, length_bytes, fixed) = match Marker::from_u8(first) {
            Marker::Null => (Nil, 0, 0),
            Marker::True | Marker::False => (Bool, 0, 0),
            Marker::FixPos(_) | Marker::FixNeg(_) => (Int, 0, 0),
            Marker::U8 | Marker::I8 => (Int, 0, 1),
            Marker::U16 | Marker::I16 => (Int, 0, 2),
            Marker::U32 | Marker::I32 => (Int, 0, 4),
            Marker::U64 | Marker::I64 => (Int, 0, 8),
            Marker::F32 => (Float, 0, 4),
            Marker::F64 => (Float, 0, 8),
            Marker::FixStr(len) => (Str, 0, u64::from(len)),
            Marker::Str8 => (Str, 1, 0),
            Marker::Str16 => (Str, 2, 0),
            Marker::Str32 => (Str, 4, 0),
            Marker::Bin8 => (Bin, 1, 0),
            Marker::Bin16 => (Bin, 2, 0),
            Marker::Bin32 => (Bin, 4, 0),
            // An extension has a byte for its type before its data.
            Marker::FixExt1 => (Ext, 0, 2),
            Marker::FixExt2 => (Ext, 0, 3),
            Marker::FixExt4 => (Ext, 0, 5),
            Marker::FixExt8 => (Ext, 0, 9),
            Marker::FixExt16 => (Ext, 0, 17),
            Marker::Ext8 => (Ext, 1, 1),
            Marker::Ext16 => (Ext, 2, 1),
            Marker::Ext32 => (Ext, 4, 1),
            Marker::FixArray(len) => (Array, 0, u64::from(len)),
            Marker::Array16 => (Array, 2, 0),
            Marker::Array32 => (Array, 4, 0),
            Marker::FixMap(len) => (Map, 0, u64::from(len)),
            Marker::Map16 => (Map, 2, 0),
            Marker::Map32 => (Map, 4, 0),
            Marker::Reserved => return None,
        };
        Some(Shape {
            kind,
            length_bytes,
            fixed,
        })
    }
}
