//! What gRPC statuses mean for a batch.
//!
//! Owns: OTLP's rules for them, the details of a status that tell when to come again, and telling answers that are not gRPC's: of a
//! proxy on the way. Refuses: what the status of such an answer means (`answer`).

use crate::ship::answer::{HttpAnswer, clean, forgotten_text};
use crate::ship::{Fault, Verdict};
use prost::Message;
use reqwest::header::HeaderMap;
use std::time::Duration;
use tonic::{Code, Status};

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// `google.rpc.Status`, which `grpc-status-details-bin` holds: its details alone.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// When the status says that it may be tried again; `None`: it does not say that it may.
fn retry_info(status: &Status) -> Option<Duration> {
    let details = Details::decode(status.details()).ok()?.details;
    let info = details.iter().find(|any| any.type_url == RETRY_INFO)?;
    let delay = RetryInfo::decode(&*info.value)
        .ok()?
        .retry_delay
        .unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(delay.seconds), u32::try_from(delay.nanos));
    Some(Duration::new(
        seconds.unwrap_or(0),
        nanos.unwrap_or(0).min(999_999_999),
    ))
}

/// What a status means for the batch that was sent with these headers.
pub(super) fn verdict(status: &Status, sent: &HeaderMap) -> Verdict {
    let message = clean(&forgotten_text(status.message().to_owned(), sent));
    if let Some(of_http) = other_than_grpc(status) {
        return match of_http {
            0..300 => Verdict::unclear(format!("the answer is not gRPC's: {message}")),
            _ => {
                let answer = HttpAnswer {
                    status: of_http,
                    body: format!("the answer is not gRPC's: {message}").into_bytes(),
                    ..HttpAnswer::default()
                };
                answer.verdict()
            }
        };
    }
    // Errors of our own side, as of a connection that can't be made, have their causes instead.
    let causes = std::error::Error::source(status).map(|error| clean(&crate::ship::with_causes(error)));
    let local = causes.is_some() || message.starts_with("Service was not ready");
    let reason = format!("gRPC {:?}: {}", status.code(), causes.unwrap_or(message));
    let after = retry_info(status);
    // The limit of a receiver has no code of its own.
    let words = status.message().to_lowercase();
    let too_large = ["too large", "larger than max", "size limit"]
        .iter()
        .any(|of| words.contains(of));
    let retry = |fault| Verdict::Retry {
        reason: reason.clone(),
        after,
        fault,
    };
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted if too_large => Verdict::TooLarge { reason },
        Code::ResourceExhausted if after.is_some() => retry(Fault::Load),
        _ if is_away(status) => retry(Fault::Destination),
        Code::Unavailable if !local => retry(Fault::Load),
        // OTLP gives these up; but an operator mends them, and no record is lost for that.
        Code::Unauthenticated | Code::PermissionDenied => Verdict::Retry {
            reason: format!("the credentials or their rights have to be mended: {reason}"),
            after,
            fault: if status.code() == Code::Unauthenticated {
                Fault::Destination
            } else {
                Fault::Load
            },
        },
        Code::Unimplemented => Verdict::Retry {
            reason: format!("the address has to be mended: {reason}"),
            after,
            fault: Fault::Destination,
        },
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => retry(Fault::Unclear),
        _ if local => retry(Fault::Unclear),
        _ => Verdict::Refused { reason },
    }
}

/// The status of HTTP, where what came is not gRPC's: pages and empty answers of proxies. 0 where it is not known. The client has
/// only words for that.
fn other_than_grpc(status: &Status) -> Option<u16> {
    let message = status.message();
    let number = [
        "receiving response with status: ",
        "mapped from HTTP status code ",
    ]
    .iter()
    .find_map(|before| message.split_once(before))
    .and_then(|(_, after)| after.get(..3)?.parse().ok());
    let broken = message.starts_with("protocol error: ") || message.starts_with("Unexpected EOF decoding");
    number.or(broken.then_some(0))
}

/// No connection could be made.
fn is_away(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    status.message().starts_with("Service was not ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_retry_info(code: Code, seconds: i64) -> Status {
        let info = RetryInfo {
            retry_delay: Some(Delay {
                seconds,
                nanos: 500_000_000,
            }),
        };
        let details = Details {
            details: vec![Any {
                type_url: RETRY_INFO.to_owned(),
                value: info.encode_to_vec(),
            }],
        };
        Status::with_details(code, "later", details.encode_to_vec().into())
    }

    #[test]
    fn codes_are_retried_as_the_protocol_says() {
        let of = |status: &Status| match verdict(status, &HeaderMap::new()) {
            Verdict::Retry { after, .. } => format!("retry {after:?}"),
            Verdict::Refused { .. } => "refused".to_owned(),
            Verdict::TooLarge { .. } => "too large".to_owned(),
            other => format!("{other:?}"),
        };
        for code in [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Aborted,
            Code::OutOfRange,
            Code::Unavailable,
            Code::DataLoss,
            // These beyond the protocol: an operator mends them.
            Code::Unauthenticated,
            Code::PermissionDenied,
            Code::Unimplemented,
        ] {
            assert_eq!(of(&Status::new(code, "x")), "retry None", "{code:?}");
        }
        for code in [
            Code::Unknown,
            Code::InvalidArgument,
            Code::NotFound,
            Code::AlreadyExists,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
            Code::Internal,
        ] {
            assert_eq!(of(&Status::new(code, "x")), "refused", "{code:?}");
        }
        assert_eq!(
            of(&with_retry_info(Code::ResourceExhausted, 7)),
            "retry Some(7.5s)"
        );
        assert_eq!(of(&with_retry_info(Code::Unavailable, -7)), "retry Some(500ms)");
        assert_eq!(of(&with_retry_info(Code::InvalidArgument, 7)), "refused");
        for (code, message) in [
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
            ),
            (
                Code::ResourceExhausted,
                "Error decompressing: size limit, of 4 bytes, exceeded while decompressing message",
            ),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (5 vs. 4)",
            ),
        ] {
            assert_eq!(of(&Status::new(code, message)), "too large");
        }
    }
}
