//! What can become of a record.
//!
//! Owns: the outcomes and their names. Refuses: counting them.

/// What became of a record. `outcome` label of `infertap_export_records_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The destination took it.
    Sent,
    /// The destination took its batch without it.
    Rejected,
    /// The destination refused its batch.
    Refused,
    /// Too large even alone.
    TooLarge,
    /// The queue was full, and it was the oldest.
    QueueFull,
    /// It waited longer than it may.
    Expired,
    /// The agent ended before it could be sent.
    Shutdown,
}

impl Outcome {
    /// Every outcome, in label order.
    pub const ALL: [Outcome; 7] = [
        Outcome::Sent,
        Outcome::Rejected,
        Outcome::Refused,
        Outcome::TooLarge,
        Outcome::QueueFull,
        Outcome::Expired,
        Outcome::Shutdown,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Sent => "sent",
            Outcome::Rejected => "rejected",
            Outcome::Refused => "refused",
            Outcome::TooLarge => "too_large",
            Outcome::QueueFull => "queue_full",
            Outcome::Expired => "expired",
            Outcome::Shutdown => "shutdown",
        }
    }
}
