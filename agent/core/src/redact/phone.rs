//! Telephone numbers.
//!
//! Owns: international numbers, those of China and of North America as they are written, and other numbers where a word says
//! what they are. Refuses: bare digits that nothing tells from an order number, but for Chinese mobiles, whose first three
//! digits do.

use super::{
    Kind,
    near::{Near, digits, regex},
};
use regex::Regex;
use std::sync::LazyLock;

static INTERNATIONAL: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\+[1-9][0-9]{0,2}(?:[ .-]?\(?0?\)?[ .-]?[0-9]){6,13}"));
static CHINA_MOBILE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?:(?:\+|00)?86[ -]?|\(\+?86\) ?)?1(?:3[0-9]|4[014-9]|5[0-35-9]|6[2567]|7[0-8]|8[0-9]|9[0-35-9])[ -]?(?:[0-9]{4}[ -]?[0-9]{4}|[0-9]{3}[ -][0-9]{5}|[0-9]{2}[ -][0-9]{3}[ -][0-9]{3})",
    )
});
static CHINA_LINE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?:(?:\+|00)86[ -]?)?(?:\((?:0(?:10|2[0-9]|[3-9][0-9]{2}))\) ?|0(?:10|2[0-9]|[3-9][0-9]{2})[ -])[2-8][0-9]{2,3}[ -]?[0-9]{4}(?:(?:转|-|ext\.?|x) ?[0-9]{1,5})?",
    )
});
static CHINA_SERVICE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[48]00[ -][0-9]{3}[ -]?[0-9]{4}|[48]00[ -][0-9]{4}[ -][0-9]{3}"));
static NORTH_AMERICA: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:\+?1[ .-]?)?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}(?: ?(?:x|ext\.?) ?[0-9]{1,6})?",
    )
});
/// Any number that could be one, where a word says so.
static ANY: LazyLock<Regex> = LazyLock::new(|| regex(r"\+?\(?[0-9](?:[ .()/-]{0,2}[0-9]){6,14}"));
static SAYS_SO: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:(?:\b(?:tele)?phone|\btel\b|mobile?|\bcell\b|\bhandy\b|rufnummer|\btél|teléfono|móvil|celular|телефон|携帯|핸드폰|전화|\bfax\b|\bsms\b|whatsapp|contact[ _]?(?:no|number)|电话|電話|手机|手機|联系方式|联系我|致电|拨打|座机|热线|传真|微信号?)(?:[ _]?(?:no|num|number|号码?|號碼?|#))?[^0-9\n+(]{0,16}|(?:\bcall(?:ed|ing)?|\bdial|\breach|\btext(?:ed)?)(?: (?:me|him|her|us|them|at|on|back|now))*[ :]{0,3})\+?\(?$",
    )
});

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    let mut all = |expression: &Regex, holds: &dyn Fn(usize, usize, &str) -> bool| {
        for found in expression.find_iter(text) {
            if stands_alone(near, found.start(), found.end())
                && holds(found.start(), found.end(), found.as_str())
            {
                add(found.start(), found.end(), Kind::Phone);
            }
        }
    };
    all(&INTERNATIONAL, &|_, _, number| is_international(number));
    // A round number is a quantity.
    all(&CHINA_MOBILE, &|_, _, number| !number.ends_with("000000"));
    all(&CHINA_LINE, &|_, _, _| true);
    all(&CHINA_SERVICE, &|_, _, _| true);
    all(&NORTH_AMERICA, &|_, _, number| is_north_american(number));
    all(&ANY, &|start, _, number| {
        !is_date(number) && !number.contains("  ") && near.follows(start, &SAYS_SO)
    });
}

/// Not a part of a longer number or name. A country's code may stand before it.
fn stands_alone(near: Near<'_>, start: usize, end: usize) -> bool {
    let digit = |at: Option<usize>| {
        at.and_then(|at| near.at(at))
            .is_some_and(|byte| byte.is_ascii_digit())
    };
    let tied_before = matches!(near.before(start), Some(b'.' | b'-' | b'+')) && digit(start.checked_sub(2));
    let tied_after = matches!(near.at(end), Some(b'.' | b'-' | b':')) && digit(Some(end + 1));
    near.is_word(start, end) && !tied_before && !tied_after
}

/// Its length is one that numbers of its country have.
fn is_international(number: &str) -> bool {
    let count = digits(number).count();
    let head = digits(number).take(2).fold(0, |head, digit| head * 10 + digit);
    match head {
        10..=19 | 70..=79 => count == 11,
        86 => (11..=13).contains(&count),
        _ => (9..=15).contains(&count),
    }
}

/// No service code (`911`) as area or exchange.
fn is_north_american(number: &str) -> bool {
    let count = digits(number).count();
    let skip = usize::from(number.trim_start_matches('+').starts_with('1'));
    let three = |from: usize| {
        digits(number)
            .skip(skip + from)
            .take(3)
            .fold(0, |all, digit| all * 10 + digit)
    };
    count >= 10 && three(0) % 100 != 11 && three(3) % 100 != 11
}

/// `2024-01-31`, `20240131`, `31.01.2024`, with a time or without.
fn is_date(number: &str) -> bool {
    static DATE: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r"^(?:(?:19|20)[0-9]{2}[-/. ]?(?:0[1-9]|1[0-2])[-/. ]?(?:0[1-9]|[12][0-9]|3[01])(?:[^0-9]|$)|[0-3]?[0-9][-/.][01]?[0-9][-/.](?:19|20)[0-9]{2}(?:[^0-9]|$))",
        )
    });
    DATE.is_match(number)
}
