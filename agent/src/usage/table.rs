//! Tables for people.
//!
//! Owns: columns, their widths, how numbers are written. Refuses: what is in them.

use std::io::{self, Write};

/// A table: names on the left, numbers on the right.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns on the left that are text.
    texts: usize,
}

impl Table {
    /// One with this head, of which the first `texts` columns are text.
    pub(super) fn new(texts: usize, head: &[&str]) -> Table {
        Table {
            rows: vec![head.iter().map(|&title| title.to_owned()).collect()],
            texts,
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Prints it, without the columns in which no row has anything.
    ///
    /// # Errors
    /// The output can't be written.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
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
                line.push_str(&if *column < self.texts {
                    format!("{text:<width$}")
                } else {
                    format!("{text:>width$}")
                });
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// What stands for a value that is not known.
pub(super) const ABSENT: &str = "-";

/// A name from outside, so that it can't move the cursor.
pub(super) fn name(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '_' } else { c });
    clean.take(64).collect()
}

/// A number with its thousands apart.
pub(super) fn count(number: u64) -> String {
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
pub(super) fn known(number: Option<u64>) -> String {
    number.map_or_else(|| ABSENT.to_owned(), count)
}

/// A change, with its sign.
pub(super) fn change(number: f64) -> String {
    let sign = if number < 0.0 { '-' } else { '+' };
    format!("{sign}{}", count(number.abs().round() as u64))
}

/// A part of a whole.
pub(super) fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| ABSENT.to_owned(), |part| format!("{:.0} %", 100.0 * part))
}

/// A time, seconds, in its two largest units.
pub(super) fn time(seconds: u64) -> String {
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
