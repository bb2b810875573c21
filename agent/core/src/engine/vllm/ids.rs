//! What users wrote, as it stands in a message: token ids, and bytes that are only compared.
//!
//! Owns: their place in the message, and reading ids one by one. Refuses: keeping them, and printing them.

use super::ShapeError;
use crate::wire::msgpack::Reader;
use std::fmt;

/// An array of token ids. How many there are is all that it prints.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct TokenIds<'a> {
    /// Behind the array's header.
    values: &'a [u8],
    count: u32,
}

impl fmt::Debug for TokenIds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenIds({})", self.count)
    }
}

/// Bytes that nothing is read from: they are the same as others, or not. Prints nothing of them.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Opaque<'a>(pub &'a [u8]);

impl fmt::Debug for Opaque<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() {
            "Opaque(none)"
        } else {
            "Opaque"
        })
    }
}

impl<'a> TokenIds<'a> {
    /// Reads past an array.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<TokenIds<'a>, ShapeError> {
        let mut header = *reader;
        let count = header.array()?;
        let before = header.rest();
        reader.skip()?;
        let len = before.len().saturating_sub(reader.rest().len());
        Ok(TokenIds {
            values: before.get(..len).unwrap_or_default(),
            count,
        })
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One after the other, up to the first that is no id.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let mut reader = Reader::new(self.values);
        (0..self.count).map_while(move |_| reader.int().ok().and_then(|id| u32::try_from(id).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_width_are_read_and_others_end_them() {
        for (bytes, count, ids) in [
            (&[0x90, 0x2a][..], 0, &[][..]),
            (&[0x93, 1, 0xcc, 200, 0xcd, 1, 0, 0x2a], 3, &[1, 200, 256]),
            (&[0x92, 0xff, 1, 0x2a], 2, &[]),
            (&[0x92, 7, 0xc0, 0x2a], 2, &[7]),
            (&[0x91, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0, 0x2a], 1, &[]),
        ] {
            let mut reader = Reader::new(bytes);
            let read = TokenIds::read(&mut reader).expect("whole");
            assert_eq!((read.len(), read.is_empty()), (count, count == 0));
            assert_eq!(read.iter().collect::<Vec<u32>>(), ids);
            assert_eq!(
                format!("{read:?}"),
                format!("TokenIds({count})"),
                "no text is printed"
            );
            assert_eq!(reader.int(), Ok(42), "the reader is behind it");
        }
        assert!(TokenIds::read(&mut Reader::new(&[0x92, 1])).is_err());
        assert!(TokenIds::read(&mut Reader::new(&[0xc0])).is_err());
    }
}
