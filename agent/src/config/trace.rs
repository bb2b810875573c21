//! `[trace]`: how requests are tied to traces.
//!
//! Owns: the section and its mistakes. Refuses: reading the headers (the core's `trace`).

use crate::config_section;
use infertap_core::scene::header_name;

config_section! {
    /// Which trace a request belongs to: the headers traceparent, b3 (or X-B3-TraceId) and X-Request-Id are read, in this
    /// order. Read again on SIGHUP and when the file changes. See docs/traces.md.
    pub struct TraceSection {
        /// Header that is read before them, as in "x-correlation-id". Its value may be any text.
        pub header: Option<String> = None,
    }
}

impl TraceSection {
    /// The header, in lower case.
    ///
    /// # Errors
    /// Its key, and why it is refused and what would be right.
    pub(super) fn header(&self) -> Result<Option<Box<str>>, Vec<(String, String)>> {
        let header = self.header.as_deref().map(header_name).transpose();
        header.map_err(|reason| vec![("trace.header".to_owned(), reason)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_credentials_is_refused() {
        for (header, expected) in [
            (None, Ok(None)),
            (Some("X-Correlation-Id"), Ok(Some("x-correlation-id"))),
            (Some("Authorization"), Err("carries a credential")),
            (Some("x y"), Err("is no name of a header")),
        ] {
            let section = TraceSection {
                header: header.map(str::to_owned),
            };
            match (section.header(), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), expected),
                (Err(bad), Err(reason)) => {
                    assert!(bad[0].0 == "trace.header" && bad[0].1.contains(reason), "{bad:?}");
                }
                (found, expected) => panic!("{header:?}: {found:?}, not {expected:?}"),
            }
        }
    }
}
