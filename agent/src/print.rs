//! What commands print: tables for people, JSON for programs.
//!
//! Owns: columns, their widths, how numbers are written. Refuses: what is in them.

use serde::Serialize;
use std::io::{self, Write};

/// Prints JSON.
///
/// # Errors
/// The output can't be written; a reader that has seen enough is an error of I/O, and not one of JSON.
pub(crate) fn json(answer: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, answer)?;
    writeln!(out)
}

/// A table: names on the left, numbers on the right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns on the left that are text.
    texts: usize,
    /// The first of the columns behind the numbers that are text again.
    texts_again: usize,
}

impl Table {
    /// One with this head, of which the first `texts` columns are text.
    pub(crate) fn new(texts: usize, head: &[&str]) -> Table {
        Table {
            rows: vec![head.iter().map(|&title| title.to_owned()).collect()],
            texts,
            texts_again: head.len(),
        }
    }

    /// With text again from this column on.
    pub(crate) fn text_from(mut self, column: usize) -> Table {
        self.texts_again = column;
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Prints it, without the columns in which no row has anything.
    ///
    /// # Errors
    /// The output can't be written.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let shown: Vec<(usize, usize)> = (0..columns)
            .filter(|column| {
                let empty = |row: &Vec<String>| matches!(&*cell(row, *column), "" | ABSENT);
                *column < self.texts || !self.rows.iter().skip(1).all(empty)
            })
            .map(|column| {
                let widths = self.rows.iter().map(|row| cell(row, column).chars().count());
                (column, widths.max().unwrap_or(0))
            })
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, width) in &shown {
                let (text, width) = (cell(row, *column), *width);
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let padded = if *column < self.texts || *column >= self.texts_again {
                    format!("{text:<width$}")
                } else {
                    format!("{text:>width$}")
                };
                line.push_str(&padded);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// What stands for a value that is not known.
pub(crate) const ABSENT: &str = "-";

/// A name from outside, so that it can't move the cursor.
pub(crate) fn name(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '_' } else { c });
    clean.take(64).collect()
}

/// A number with its thousands apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What is known of a number.
pub(crate) fn known(number: Option<u64>) -> String {
    number.map_or_else(|| ABSENT.to_owned(), count)
}

/// A change, with its sign.
pub(crate) fn change(number: f64) -> String {
    let sign = if number < 0.0 { '-' } else { '+' };
    format!("{sign}{}", count(number.abs().round() as u64))
}

/// A part of a whole.
pub(crate) fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| ABSENT.to_owned(), |part| format!("{:.0} %", 100.0 * part))
}

/// A time, seconds, in its two largest units.
pub(crate) fn time(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (size, unit) in units {
        if rest >= size {
            parts.push(format!("{} {unit}", rest / size));
            rest %= size;
        }
    }
    parts.truncate(2);
    if parts.is_empty() {
        "0 s".to_owned()
    } else {
        parts.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_seen_enough_is_no_trouble_of_json() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = json(&[1, 2], &mut Closed).expect_err("closed");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn numbers_and_times_read_easily() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(
            (change(-1500.4), change(0.0)),
            ("-1,500".to_owned(), "+0".to_owned())
        );
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (3600, "1 h"),
            (90_061, "1 d 1 h"),
            (3661, "1 h 1 min"),
        ] {
            assert_eq!(time(seconds), text);
        }
        assert_eq!(name("a\x1b[2Jb"), "a_[2Jb");
    }

    #[test]
    fn text_may_follow_numbers() {
        let mut table = Table::new(1, &["scene", "in", "why"]).text_from(2);
        table.row(vec!["chat".to_owned(), count(1000), "long".to_owned()]);
        table.row(vec!["r".to_owned(), count(1), "x".to_owned()]);
        let mut out = Vec::new();
        table.print(&mut out).expect("writes");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "scene     in  why\nchat   1,000  long\nr          1  x\n");
    }

    #[test]
    fn empty_columns_are_left_out() {
        let mut table = Table::new(1, &["scene", "in", "cached", "out"]);
        table.row(vec!["chat".to_owned(), count(1000), known(None), count(5)]);
        table.row(vec!["r".to_owned(), count(1), known(None), count(50)]);
        let mut out = Vec::new();
        table.print(&mut out).expect("writes");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "scene     in  out\nchat   1,000    5\nr          1   50\n");
    }
}
