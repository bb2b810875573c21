//! Pressure stall information: `/proc/pressure/memory`, and the file of a control group.
//!
//! Owns: their text. Refuses: the kernel's own averages: shares of any window are the difference of two totals.

use crate::discover::host::read_bounded;
use infertap_core::pressure::StallTotals;
use std::path::Path;

/// Two lines of some eighty bytes.
const LIMIT: u64 = 4096;

/// Reads a file of pressure stall information; `None` where there is none (a kernel without it, or booted with `psi=0`,
/// which makes reading fail).
pub fn read(path: &Path) -> Option<StallTotals> {
    parse(&read_bounded(path, LIMIT).ok()?)
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same for `full`; totals in microseconds.
fn parse(text: &[u8]) -> Option<StallTotals> {
    let text = std::str::from_utf8(text).ok()?;
    let total = |kind: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?
            .split(' ')
            .find_map(|field| field.strip_prefix("total="))?
            .parse()
            .ok()
    };
    Some(StallTotals {
        some_us: total("some")?,
        full_us: total("full")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn totals_are_read_and_half_a_file_is_none() {
        let text = b"some avg10=0.12 avg60=0.00 avg300=1.01 total=274764958\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=25698304\n";
        let totals = StallTotals {
            some_us: 274_764_958,
            full_us: 25_698_304,
        };
        assert_eq!(parse(text), Some(totals));
        for broken in [
            &b""[..],
            b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
            b"some total=1\nfull total=-1\n",
            b"some total=1\nfull total=\n",
            b"something total=1\nfull total=1\n",
            b"\xff\xfe",
        ] {
            assert_eq!(parse(broken), None, "{}", String::from_utf8_lossy(broken));
        }
        assert_eq!(read(Path::new("/nonexistent/memory.pressure")), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&text);
        }
    }
}
