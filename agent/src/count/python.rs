//! Values as Python writes them, which is what chat templates are written for.
//!
//! Owns: `json.dumps` and `str` of template values, and `strftime` for `strftime_now`. Refuses: templates.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// Deepest nesting that is written; what comes as JSON has at most 128.
const MAX_DEPTH: usize = 200;

/// `json.dumps(value, ensure_ascii=False, indent=indent)`.
pub(super) fn json(value: &Value, indent: Option<usize>) -> Result<String, Error> {
    let mut out = String::new();
    write_json(value, indent, 0, &mut out)?;
    Ok(out)
}

fn write_json(value: &Value, indent: Option<usize>, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "nested too deep"));
    }
    let line = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut any = false;
            for item in value.try_iter()? {
                if any {
                    out.push_str(comma);
                }
                any = true;
                line(out, depth + 1);
                write_json(&item, indent, depth + 1, out)?;
            }
            if any {
                line(out, depth);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut any = false;
            for key in value.try_iter()? {
                if any {
                    out.push_str(comma);
                }
                any = true;
                line(out, depth + 1);
                quoted(&text(&key), out);
                out.push_str(": ");
                write_json(&value.get_item(&key)?, indent, depth + 1, out)?;
            }
            if any {
                line(out, depth);
            }
            out.push('}');
        }
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("{kind} can't be written as JSON"),
            ));
        }
    }
    Ok(())
}

fn quoted(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) => float(number),
        Err(_) => value.to_string(),
    }
}

/// `repr` of a float: the shortest digits that tell it, with an exponent from 1e16 on and below 1e-4.
fn float(number: f64) -> String {
    let written = format!("{number:?}");
    match written.split_once('e') {
        None => written,
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(rest) => ('-', rest),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

/// `str(value)`.
pub(super) fn text(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        _ => repr(value, 0),
    }
}

fn repr(value: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "...".to_owned();
    }
    match value.kind() {
        ValueKind::None => "None".to_owned(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        ValueKind::Number => number(value),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            let quote = if text.contains('\'') && !text.contains('"') {
                '"'
            } else {
                '\''
            };
            let mut out = String::from(quote);
            for character in text.chars() {
                match character {
                    '\\' => out.push_str("\\\\"),
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    same if same == quote => {
                        out.push('\\');
                        out.push(same);
                    }
                    other => out.push(other),
                }
            }
            out.push(quote);
            out
        }
        ValueKind::Seq => {
            let items = value.try_iter().into_iter().flatten();
            let items: Vec<String> = items.map(|item| repr(&item, depth + 1)).collect();
            format!("[{}]", items.join(", "))
        }
        ValueKind::Map => {
            let keys = value.try_iter().into_iter().flatten();
            let pairs: Vec<String> = keys
                .map(|key| {
                    let item = value.get_item(&key).unwrap_or_default();
                    format!("{}: {}", repr(&key, depth + 1), repr(&item, depth + 1))
                })
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        _ => value.to_string(),
    }
}

/// `strftime` for the directives that dates in prompts use, in UTC.
pub(super) fn date(format: &str, seconds: i64) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = [
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
    ];
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let month_name = MONTHS[(month as usize - 1) % 12];
    let day_name = DAYS[days.rem_euclid(7) as usize];
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('Y') => {
                let _ = write!(out, "{year:04}");
            }
            Some('y') => {
                let _ = write!(out, "{:02}", year.rem_euclid(100));
            }
            Some('m') => {
                let _ = write!(out, "{month:02}");
            }
            Some('d') => {
                let _ = write!(out, "{day:02}");
            }
            Some('B') => out.push_str(month_name),
            Some('b') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('H') => {
                let _ = write!(out, "{hour:02}");
            }
            Some('I') => {
                let _ = write!(out, "{:02}", (hour + 11) % 12 + 1);
            }
            Some('M') => {
                let _ = write!(out, "{minute:02}");
            }
            Some('S') => {
                let _ = write!(out, "{second:02}");
            }
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some(other) => {
                out.push('%');
                out.push(other);
            }
            None => out.push('%'),
        }
    }
    out
}

/// Year, month and day of a day after 1970-01-01 (H. Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Value {
        serde_json::from_str(json).expect("JSON")
    }

    /// What CPython 3.11 prints.
    #[test]
    fn values_are_written_as_python_writes_them() {
        let all = value(
            r#"{"z":1,"a":[1.0,1e5,1e16,1.5e-7,-0.5,true,null],"t":"é\"\\\n\u0001🙂","e":{},"l":[],"n":18446744073709551615}"#,
        );
        assert_eq!(
            json(&all, None).expect("JSON"),
            r#"{"z": 1, "a": [1.0, 100000.0, 1e+16, 1.5e-07, -0.5, true, null], "t": "é\"\\\n\u0001🙂", "e": {}, "l": [], "n": 18446744073709551615}"#
        );
        assert_eq!(
            json(&value(r#"{"a":[1,{}],"b":"x"}"#), Some(2)).expect("JSON"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": \"x\"\n}"
        );
        assert_eq!(
            text(&value(r#"{"a":[1,"it's",null,true,1.0]}"#)),
            r#"{'a': [1, "it's", None, True, 1.0]}"#
        );
        assert_eq!(text(&Value::UNDEFINED), "");
        assert_eq!(text(&value("null")), "None");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(
            date("%d %b %Y, %A %H:%M:%S %I%p %y %% %q", 1_796_012_308),
            "30 Nov 2026, Monday 04:18:28 04AM 26 %% %q"
        );
        assert_eq!(date("%Y-%m-%d %B", 951_782_400), "2000-02-29 February");
        assert_eq!(date("%Y-%m-%d", -1), "1969-12-31");
    }
}
