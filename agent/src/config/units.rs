//! Durations and sizes as people write them: `"250ms"`, `"10m"`, `"8MiB"`.
//!
//! Owns: parsing and printing, exact both ways. Refuses: ranges; each key checks its own.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const TIME_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
const SIZE_UNITS: [(&str, u64); 5] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// A span of time in whole milliseconds, written as a number and one of `ms`, `s`, `m`, `h`, `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(Duration);

impl Span {
    /// So many milliseconds.
    pub const fn millis(millis: u64) -> Span {
        Span(Duration::from_millis(millis))
    }

    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Span {
        Span(Duration::from_secs(seconds))
    }

    /// The same, as the standard library's type.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Span, String> {
        with_unit(text, &TIME_UNITS)
            .map(Span::millis)
            .ok_or_else(|| format!("{text:?} is no duration: write a whole number and one of ms, s, m, h, d, as in \"500ms\" or \"10m\""))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_unit(f, self.0.as_millis() as u64, &TIME_UNITS)
    }
}

/// A number of bytes, written as a number alone or with one of `B`, `KiB`, `MiB`, `GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Size {
    /// So many bytes.
    pub const fn bytes(bytes: u64) -> Size {
        Size(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        with_unit(text, &SIZE_UNITS)
            .map(Size)
            .ok_or_else(|| format!("{text:?} is no size: write a whole number of bytes, or one with B, KiB, MiB or GiB, as in \"8MiB\""))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_unit(f, self.0, &SIZE_UNITS)
    }
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// The largest unit that divides the value.
fn print_unit(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, scale) = units
        .iter()
        .rev()
        .find(|(_, scale)| value != 0 && value.is_multiple_of(*scale))
        .unwrap_or(&units[1]);
    write!(f, "{}{name}", value / scale)
}

macro_rules! as_text {
    ($ty:ident, $expecting:literal, $from_integer:expr) => {
        impl Serialize for $ty {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $ty {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$ty, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $ty;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$ty, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$ty, E> {
                        let from_integer: fn(i64) -> Option<$ty> = $from_integer;
                        from_integer(value)
                            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(value), &self))
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }
    };
}

as_text!(Span, "a duration such as \"500ms\" or \"10m\"", |_| None);
as_text!(Size, "a number of bytes, or a size such as \"8MiB\"", |bytes| {
    u64::try_from(bytes).ok().map(Size)
});

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_and_sizes_read_as_written() {
        for (text, millis) in [
            ("250ms", 250),
            ("1s", 1_000),
            (" 10 m ", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(text.parse(), Ok(Span::millis(millis)), "{text}");
        }
        for text in ["", "10", "ms", "-1s", "1.5s", "1 parsec", "18446744073709551615d"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for (text, bytes) in [
            ("512", 512),
            ("8MiB", 8 << 20),
            ("64 KiB", 64 << 10),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(text.parse(), Ok(Size::bytes(bytes)), "{text}");
        }
        for text in ["", "8MB", "MiB", "-1", "18446744073709551615GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Span::millis(90_000).to_string(), "90s");
        assert_eq!(Span::millis(0).to_string(), "0s");
        assert_eq!(Size::bytes(8 << 20).to_string(), "8MiB");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(value in any::<u32>()) {
            let span = Span::millis(u64::from(value));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            let size = Size::bytes(u64::from(value));
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
