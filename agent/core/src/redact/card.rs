//! Numbers of payment cards.
//!
//! Owns: issuers' ranges, lengths, groupings and the check digit. Refuses: numbers without a valid check digit, unless the
//! text says that they are card numbers.

use super::{
    Kind,
    near::{Near, digits, regex},
};
use regex::Regex;
use std::sync::LazyLock;

/// Groups of digits with one separator between them; long enough for a card.
static RUN: LazyLock<Regex> = LazyLock::new(|| regex(r"[0-9](?:[ .-]?[0-9]){11,}"));
static SAYS_SO: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:card(?:[ _-]?(?:no|num|number|#))?|\bpan|visa|mastercard|amex|银行卡号?|信用卡号?|储蓄卡号?|借记卡号?|卡号|帳號|账号|账户)[^0-9\n]{0,12}$",
    )
});
/// How issuers group the digits on a card; one group is always right.
const GROUPINGS: [&[usize]; 10] = [
    &[4, 4, 4, 4],
    &[4, 6, 5],
    &[4, 6, 4],
    &[4, 4, 4, 4, 1],
    &[4, 4, 4, 4, 2],
    &[4, 4, 4, 4, 3],
    &[4, 3, 3, 3],
    &[6, 13],
    &[6, 10],
    &[8, 8],
];

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    for run in RUN.find_iter(near.text()) {
        let groups = groups(run.as_str());
        let mut first = 0;
        while first < groups.len() {
            let found = (first..groups.len().min(first + 5)).rev().find(|&last| {
                let (start, end) = (run.start() + groups[first].0, run.start() + groups[last].1);
                let lengths = groups[first..=last].iter().map(|(from, to)| to - from);
                let grouped = first == last
                    || GROUPINGS
                        .iter()
                        .any(|known| lengths.clone().eq(known.iter().copied()));
                grouped && is_card(near, start, end)
            });
            first = match found {
                Some(last) => {
                    add(
                        run.start() + groups[first].0,
                        run.start() + groups[last].1,
                        Kind::Card,
                    );
                    last + 1
                }
                None => first + 1,
            };
        }
    }
}

/// Where groups of digits begin and end.
fn groups(run: &str) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for (at, byte) in run.bytes().enumerate() {
        if byte.is_ascii_digit() {
            match out.last_mut() {
                Some(last) if last.1 == at => last.1 = at + 1,
                _ => out.push((at, at + 1)),
            }
        }
    }
    out
}

fn is_card(near: Near<'_>, start: usize, end: usize) -> bool {
    let number = near.get(start, end);
    let count = digits(number).count();
    // `card_4111…`: an underscore before it is nothing where the name says what it is.
    let named = || near.before(start) == Some(b'_') && near.ends_word(end) && near.follows(start, &SAYS_SO);
    if !(12..=19).contains(&count) || !near.is_word(start, end) && !named() {
        return false;
    }
    // Part of a decimal number is none; groups beside it are another matter.
    let tied =
        |sign: Option<u8>, digit: Option<u8>| sign == Some(b'.') && digit.is_some_and(|d| d.is_ascii_digit());
    let before = start.checked_sub(2).and_then(|at| near.at(at));
    if !number.contains('.') && (tied(near.before(start), before) || tied(near.at(end), near.at(end + 1))) {
        return false;
    }
    if luhn(number) && is_issued(number, count) {
        return true;
    }
    near.follows(start, &SAYS_SO)
}

/// The check digit is right.
pub(super) fn luhn(number: &str) -> bool {
    let mut sum = 0;
    for (at, digit) in number.bytes().rev().filter(u8::is_ascii_digit).enumerate() {
        let digit = u32::from(digit - b'0') << (at & 1);
        sum += if digit > 9 { digit - 9 } else { digit };
    }
    sum % 10 == 0
}

/// Somebody issues cards with this beginning and length.
fn is_issued(number: &str, count: usize) -> bool {
    let head = digits(number).take(6).fold(0, |head, digit| head * 10 + digit);
    let (two, three, four) = (head / 10_000, head / 1000, head / 100);
    match two {
        // Visa.
        40..=49 => matches!(count, 13 | 16 | 19),
        // Mastercard, the newer range too.
        51..=55 => count == 16,
        22..=27 if (2221..=2720).contains(&four) => count == 16,
        // Mir.
        22 => (2200..=2204).contains(&four) && (16..=19).contains(&count),
        // American Express.
        34 | 37 => count == 15,
        // Diners Club.
        36 | 38 | 39 => (14..=19).contains(&count),
        30 => ((300..=305).contains(&three) || three == 309) && (14..=19).contains(&count),
        // JCB.
        35 => (3528..=3589).contains(&four) && (16..=19).contains(&count),
        // UnionPay.
        62 | 81 => (16..=19).contains(&count),
        // Discover.
        60 => (matches!(four, 6011) || (603..=609).contains(&three)) && (16..=19).contains(&count),
        64 | 65 => (644..=659).contains(&three) && (16..=19).contains(&count),
        // Maestro.
        50 | 56..=58 | 63 | 67 => {
            matches!(four, 5018 | 5020 | 5038 | 5612 | 5893 | 6304 | 6759 | 6761..=6763)
                && (13..=19).contains(&count)
        }
        // Debit cards of Chinese banks from before UnionPay's range.
        95 => matches!(four, 9558 | 9559) && (16..=19).contains(&count),
        _ => false,
    }
}
