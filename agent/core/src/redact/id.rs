//! Numbers of persons: identity cards, social security, passports.
//!
//! Owns: their shapes, dates and check digits; those without a check digit need a word before them that says what they are.
//! Refuses: numbers of firms.

use super::{
    Kind,
    near::{Near, digits, regex},
};
use regex::Regex;
use std::sync::LazyLock;

/// A resident of China: six digits of the place, the birthday, three digits, a check digit.
static CHINA: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"[1-8][0-9]{5}[ -]?(?:18|19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[ -]?[0-9]{3}[0-9Xx]",
    )
});
/// As they were until 1999: without a century and a check digit.
static CHINA_OLD: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[1-8][0-9]{5}[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{3}"));
static HONG_KONG: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[A-Za-z]{1,2}[0-9]{6} ?(?:\([0-9Aa]\)|[0-9Aa])"));
static MACAU: LazyLock<Regex> = LazyLock::new(|| regex(r"[157][0-9]{6} ?\([0-9]\)"));
static TAIWAN: LazyLock<Regex> = LazyLock::new(|| regex(r"[A-Za-z][1289][0-9]{8}"));
static US: LazyLock<Regex> = LazyLock::new(|| regex(r"[0-8][0-9]{2}([ -]?)[0-9]{2}[ -]?[0-9]{4}"));
static UK: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]"));
static KOREA: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])-[1-8][0-9]{6}"));
/// A letter or two and digits, or digits: of passports and travel permits, where the text says so.
static PASSPORT: LazyLock<Regex> = LazyLock::new(|| regex(r"[A-Za-z]{0,2}[0-9]{7,9}"));

static SAYS_ID: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:身份证|身分證|身份證|证件|證件|居民证|id[ _-]?(?:card|no\b|num|number)|idcard|identity|identification|\bid\b|hkid|id_no)[^0-9\n]{0,16}$",
    )
});
static SAYS_US: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)(?:\bssn|social[ _-]?security|tax(?:payer)?[ _-]?id|社会安全号?码?|社保号)[^0-9\n]{0,24}$")
});
static SAYS_UK: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)(?:\bni\b|nino|national[ _-]?insurance)[^0-9\n]{0,24}$"));
static SAYS_PASSPORT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:passport|护照|護照|通行证|通行證|回乡证|台胞证)[ _-]?(?:no|num|number|#|号码|號碼|号|號)?[^0-9A-Za-z\n]{0,8}(?:is |was |no\.? |number |: ?)*$",
    )
});

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    let mut all = |expression: &Regex, holds: &dyn Fn(usize, usize, &str) -> bool| {
        for found in expression.find_iter(text) {
            let (start, end) = (found.start(), found.end());
            if near.is_word(start, end) && holds(start, end, found.as_str()) {
                add(start, end, Kind::Id);
            }
        }
    };
    all(&CHINA, &|start, end, number| {
        near.is_number(start, end) && is_place(number) && has_date(number) && china(number)
    });
    all(&CHINA_OLD, &|start, end, number| {
        near.is_number(start, end) && is_place(number) && near.follows(start, &SAYS_ID)
    });
    all(&HONG_KONG, &|start, _, number| {
        hong_kong(number) && (number.ends_with(')') || near.follows(start, &SAYS_ID))
    });
    all(&MACAU, &|start, _, _| near.follows(start, &SAYS_ID));
    all(&TAIWAN, &|_, _, number| taiwan(number));
    all(&US, &|start, end, number| {
        let dashed = number.bytes().filter(|&byte| byte == b'-').count() == 2;
        near.is_number(start, end) && us(number) && (dashed || near.follows(start, &SAYS_US))
    });
    all(&UK, &|start, _, number| {
        number.contains(' ') && number.bytes().take(2).all(|b| b.is_ascii_uppercase())
            || near.follows(start, &SAYS_UK)
    });
    all(&KOREA, &|start, end, _| near.is_number(start, end));
    all(&PASSPORT, &|start, _, _| near.follows(start, &SAYS_PASSPORT));
}

/// The first two digits are a province's.
fn is_place(number: &str) -> bool {
    let province = digits(number).take(2).fold(0, |place, digit| place * 10 + digit);
    matches!(province, 11..=15 | 21..=23 | 31..=37 | 41..=46 | 50..=54 | 61..=65 | 71 | 81..=83)
}

/// The birthday is one.
fn has_date(number: &str) -> bool {
    let part = |skip, take| {
        digits(number)
            .skip(skip)
            .take(take)
            .fold(0, |all, digit| all * 10 + digit)
    };
    let (year, month, day) = (part(6, 4), part(10, 2), part(12, 2));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=last).contains(&day) && (1880..=2100).contains(&year)
}

/// ISO 7064, MOD 11-2.
fn china(number: &str) -> bool {
    let chars = number.bytes().filter(u8::is_ascii_alphanumeric);
    let sum = chars.rev().enumerate().fold(0_u32, |sum, (at, byte)| {
        let value = if byte.is_ascii_digit() {
            u32::from(byte - b'0')
        } else {
            10
        };
        sum + value * ((1 << at) % 11)
    });
    sum % 11 == 1
}

/// The sum of letters and digits by their places is a multiple of 11; a letter that is not there counts as a space, 36.
fn hong_kong(number: &str) -> bool {
    let values = number.chars().filter_map(|char| char.to_digit(36));
    let count = values.clone().count();
    let mut sum = if count == 8 { 36 * 9 } else { 0 };
    for (at, value) in values.rev().enumerate() {
        // The check character A stands for 10, as it does among letters.
        sum += value * (at as u32 + 1);
    }
    (8..=9).contains(&count) && sum % 11 == 0
}

/// The letter stands for two digits; the sum by places is a multiple of 10.
fn taiwan(number: &str) -> bool {
    const LETTERS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVXYWZIO";
    let letter = number.bytes().next().map(|letter| letter.to_ascii_uppercase());
    let Some(place) = LETTERS.iter().position(|known| Some(*known) == letter) else {
        return false;
    };
    let place = place as u32 + 10;
    let weights = [8, 7, 6, 5, 4, 3, 2, 1, 1];
    let sum: u32 = digits(number)
        .zip(weights)
        .map(|(digit, weight)| digit * weight)
        .sum();
    (place / 10 + place % 10 * 9 + sum).is_multiple_of(10)
}

/// Numbers that are never given are none.
fn us(number: &str) -> bool {
    let part = |skip, take| {
        digits(number)
            .skip(skip)
            .take(take)
            .fold(0, |all, digit| all * 10 + digit)
    };
    let (area, group, serial) = (part(0, 3), part(3, 2), part(5, 4));
    area != 0 && area != 666 && group != 0 && serial != 0
}
