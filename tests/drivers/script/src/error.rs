//! NVML's return codes, and when the script wants which.
//!
//! Owns: their names in the script and their numbers. Refuses: deciding when an error is the right answer.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a function returns (`nvmlReturn_t`); in the script by NVML's own name, without `NVML_ERROR_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the names are NVML's own")]
#[repr(u32)]
pub enum Code {
    Uninitialized = 1,
    InvalidArgument = 2,
    NotSupported = 3,
    NoPermission = 4,
    AlreadyInitialized = 5,
    NotFound = 6,
    InsufficientSize = 7,
    InsufficientPower = 8,
    DriverNotLoaded = 9,
    Timeout = 10,
    IrqIssue = 11,
    LibraryNotFound = 12,
    FunctionNotFound = 13,
    CorruptedInforom = 14,
    GpuIsLost = 15,
    ResetRequired = 16,
    OperatingSystem = 17,
    LibRmVersionMismatch = 18,
    InUse = 19,
    Memory = 20,
    NoData = 21,
    ArgumentVersionMismatch = 25,
    Deprecated = 26,
    NotReady = 27,
    GpuNotFound = 28,
    InvalidState = 29,
    Unknown = 999,
}

/// Errors by the name of the function that answers them.
pub type Errors = BTreeMap<String, Failure>;

/// When a function fails, and how: `"NOT_SUPPORTED"` for always, or a list of times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Failure {
    /// At all times.
    Always(Code),
    /// Between times.
    At(Vec<FailureTime>),
}

/// A time in which a function fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureTime {
    /// First second.
    pub from_s: f64,
    /// End, exclusive; absent: for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_s: Option<f64>,
    /// What is returned.
    pub code: Code,
}

impl Failure {
    /// What the function fails with at second `t`.
    pub fn at(&self, t: f64) -> Option<Code> {
        match self {
            Failure::Always(code) => Some(*code),
            Failure::At(times) => times
                .iter()
                .find(|time| time.from_s <= t && time.to_s.is_none_or(|to| t < to))
                .map(|time| time.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn always_and_at_times() {
        let errors: Errors = serde_json::from_str(
            r#"{"a": "NOT_SUPPORTED", "b": [{"from_s": 1, "to_s": 2, "code": "GPU_IS_LOST"}, {"from_s": 4, "code": "UNKNOWN"}]}"#,
        )
        .unwrap();
        assert_eq!(errors["a"].at(7.0), Some(Code::NotSupported));
        for (t, code) in [
            (0.5, None),
            (1.0, Some(Code::GpuIsLost)),
            (2.0, None),
            (9.0, Some(Code::Unknown)),
        ] {
            assert_eq!(errors["b"].at(t), code, "{t}");
        }
        assert!(serde_json::from_str::<Errors>(r#"{"a": "NOT_SUPORTED"}"#).is_err());
    }
}
