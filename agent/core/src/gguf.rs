//! The metadata of a GGUF file, read from its head: what llama.cpp knows of a model's vocabulary and chat template.
//!
//! Owns: the format (versions 2 and 3, little-endian), and bounds on everything that the file claims. Refuses: tensors,
//! opening files (it is given a reader), and the meaning of keys. The format is that of ggml's `docs/gguf.md`.

use std::{collections::BTreeMap, io::Read};

#[cfg(test)]
mod tests;

/// Longest key.
const MAX_KEY: u64 = 64 * 1024;
/// Most pairs.
const MAX_PAIRS: u64 = 65_536;
/// Longest text that stands alone: a chat template.
const MAX_TEXT: u64 = 4 << 20;
/// Most elements of an array; the largest vocabularies have a quarter of a million words and half a million merges.
const MAX_ELEMENTS: u64 = 1 << 20;
/// Most bytes of the head: some 30 MB for the largest vocabularies.
const MAX_HEAD: u64 = 128 << 20;

/// Why a file's metadata can't be read.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It does not begin as GGUF files do.
    #[error("it is no GGUF file")]
    NotGguf,
    /// A version that is not known here.
    #[error("GGUF version {0} is not known: 2 and 3 are")]
    Version(u32),
    /// A count or length beyond what any model has.
    #[error("its {0} is larger than any model's")]
    TooLarge(&'static str),
    /// A type that is not known here.
    #[error("its metadata has the unknown type {0}")]
    Type(u32),
    /// A text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(String),
    /// It ends early, or can't be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned whole number.
    Uint(u64),
    /// A whole number that may be negative.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// An array of another type.
    Other,
}

/// The metadata that was asked for.
#[derive(Debug, Default)]
pub struct Gguf(BTreeMap<String, Value>);

impl Gguf {
    /// Reads the pairs whose keys `wanted` accepts; the others are passed over.
    ///
    /// # Errors
    /// See [`GgufError`].
    pub fn read(input: impl Read, wanted: impl Fn(&str) -> bool) -> Result<Gguf, GgufError> {
        let mut input = Input(input.take(MAX_HEAD));
        if input.bytes::<4>()? != *b"GGUF" {
            return Err(GgufError::NotGguf);
        }
        let version = input.u32()?;
        if !(2..=3).contains(&version) {
            return Err(GgufError::Version(version));
        }
        let _tensors = input.u64()?;
        let pairs = input.u64()?;
        if pairs > MAX_PAIRS {
            return Err(GgufError::TooLarge("number of keys"));
        }
        let mut values = BTreeMap::new();
        for _ in 0..pairs {
            let key = input.text(MAX_KEY, "key")?;
            let kind = input.u32()?;
            if wanted(&key) {
                let value = input.value(kind, &key)?;
                values.insert(key, value);
            } else {
                input.skip(kind, 0)?;
            }
        }
        Ok(Gguf(values))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Texts.
    pub fn texts(&self, key: &str) -> Option<&[String]> {
        match self.get(key)? {
            Value::Texts(texts) => Some(texts),
            _ => None,
        }
    }

    /// A whole number of at least 0.
    pub fn uint(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Uint(n) => Some(*n),
            Value::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// True or false.
    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(on) => Some(*on),
            _ => None,
        }
    }
}

/// Bytes of one element of a type that has a fixed size.
const fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

const TEXT: u32 = 8;
const ARRAY: u32 = 9;
/// Arrays of arrays deeper than any model has.
const MAX_NESTING: u32 = 4;

struct Input<R>(std::io::Take<R>);

impl<R: Read> Input<R> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn text(&mut self, limit: u64, what: &'static str) -> Result<String, GgufError> {
        let length = self.u64()?;
        if length > limit {
            return Err(GgufError::TooLarge(what));
        }
        let mut bytes = Vec::new();
        // Grows with what is there, not with what the file claims.
        (&mut self.0).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        String::from_utf8(bytes).map_err(|_| GgufError::Text(format!("a {what}")))
    }

    fn value(&mut self, kind: u32, key: &str) -> Result<Value, GgufError> {
        Ok(match kind {
            0 => Value::Uint(self.bytes::<1>()?[0].into()),
            1 => Value::Int(i8::from_le_bytes(self.bytes()?).into()),
            2 => Value::Uint(u16::from_le_bytes(self.bytes()?).into()),
            3 => Value::Int(i16::from_le_bytes(self.bytes()?).into()),
            4 => Value::Uint(self.u32()?.into()),
            5 => Value::Int(i32::from_le_bytes(self.bytes()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.bytes()?).into()),
            7 => Value::Bool(self.bytes::<1>()?[0] != 0),
            TEXT => Value::Text(self.text(MAX_TEXT, "text")?),
            ARRAY => self.array(key)?,
            10 => Value::Uint(self.u64()?),
            11 => Value::Int(i64::from_le_bytes(self.bytes()?)),
            12 => Value::Float(f64::from_le_bytes(self.bytes()?)),
            other => return Err(GgufError::Type(other)),
        })
    }

    fn array(&mut self, key: &str) -> Result<Value, GgufError> {
        let kind = self.u32()?;
        let count = self.count()?;
        match kind {
            TEXT => {
                let mut texts = Vec::new();
                for index in 0..count {
                    let text = self.text(MAX_KEY, "text").map_err(|error| match error {
                        GgufError::Text(_) => GgufError::Text(format!("text {index} of {key}")),
                        other => other,
                    })?;
                    texts.push(text);
                }
                Ok(Value::Texts(texts))
            }
            4 | 5 => {
                let mut numbers = Vec::new();
                for _ in 0..count {
                    let bytes = self.bytes::<4>()?;
                    numbers.push(if kind == 4 {
                        i64::from(u32::from_le_bytes(bytes))
                    } else {
                        i64::from(i32::from_le_bytes(bytes))
                    });
                }
                Ok(Value::Ints(numbers))
            }
            6 => {
                let mut numbers = Vec::new();
                for _ in 0..count {
                    numbers.push(f32::from_le_bytes(self.bytes()?));
                }
                Ok(Value::Floats(numbers))
            }
            other => {
                self.skip_elements(other, count, 1)?;
                Ok(Value::Other)
            }
        }
    }

    fn count(&mut self) -> Result<u64, GgufError> {
        let count = self.u64()?;
        if count > MAX_ELEMENTS {
            return Err(GgufError::TooLarge("array"));
        }
        Ok(count)
    }

    fn skip(&mut self, kind: u32, nesting: u32) -> Result<(), GgufError> {
        match (kind, width(kind)) {
            (_, Some(width)) => self.skip_bytes(width),
            (TEXT, _) => {
                let length = self.u64()?;
                self.skip_bytes(length)
            }
            (ARRAY, _) if nesting < MAX_NESTING => {
                let kind = self.u32()?;
                let count = self.count()?;
                self.skip_elements(kind, count, nesting + 1)
            }
            (ARRAY, _) => Err(GgufError::TooLarge("nesting of arrays")),
            (other, _) => Err(GgufError::Type(other)),
        }
    }

    fn skip_elements(&mut self, kind: u32, count: u64, nesting: u32) -> Result<(), GgufError> {
        if let Some(width) = width(kind) {
            return self.skip_bytes(width * count);
        }
        for _ in 0..count {
            self.skip(kind, nesting)?;
        }
        Ok(())
    }

    fn skip_bytes(&mut self, count: u64) -> Result<(), GgufError> {
        if count > self.0.limit() {
            return Err(GgufError::TooLarge("head"));
        }
        let skipped = std::io::copy(&mut (&mut self.0).take(count), &mut std::io::sink())?;
        if skipped == count {
            Ok(())
        } else {
            Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())
        }
    }
}
