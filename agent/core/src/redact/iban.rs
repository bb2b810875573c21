//! International bank account numbers.
//!
//! Owns: countries, their lengths, the check digits. Refuses: account numbers of other shapes.

use super::{
    Kind,
    near::{Near, regex},
};
use regex::Regex;
use std::sync::LazyLock;

static IBAN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?"));
/// Country, and characters of its numbers; those that are in SWIFT's registry.
const LENGTHS: &str = "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24FI18FK18FO18\
FR27GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MN20MR27MT31\
MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20YE30";

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let mut at = 0;
    while let Some(found) = IBAN.find_at(near.text(), at) {
        let end = account(near, found.start(), found.as_str());
        if let Some(end) = end {
            add(found.start(), end, Kind::Iban);
        }
        // What only looks like one may hold the beginning of one.
        at = end.unwrap_or(found.start() + 1);
    }
}

/// Where the account's number ends, if it is one.
fn account(near: Near<'_>, start: usize, found: &str) -> Option<usize> {
    // What follows the number may look like a part of it.
    let mut left = length(found)?;
    let last = found.bytes().position(|byte| {
        left -= usize::from(byte.is_ascii_alphanumeric());
        left == 0
    })?;
    let end = start + last + 1;
    (near.is_word(start, end) && is_valid(near.get(start, end))).then_some(end)
}

fn length(number: &str) -> Option<usize> {
    let country = number.get(..2)?.to_ascii_uppercase();
    let at = LENGTHS
        .as_bytes()
        .chunks(4)
        .find(|entry| entry.starts_with(country.as_bytes()))?;
    std::str::from_utf8(at.get(2..)?).ok()?.parse().ok()
}

/// ISO 7064, MOD 97-10, of the number with its first four characters at its end.
fn is_valid(number: &str) -> bool {
    let chars = || number.chars().filter(char::is_ascii_alphanumeric);
    let rest = chars()
        .skip(4)
        .chain(chars().take(4))
        .try_fold(0_u32, |rest, char| {
            let value = char.to_digit(36)?;
            Some(if value < 10 {
                (rest * 10 + value) % 97
            } else {
                (rest * 100 + value) % 97
            })
        });
    rest == Some(1)
}
