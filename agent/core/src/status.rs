//! How a request ended: one decision over the facts.
//!
//! Owns: the order of evidence, and the bias where evidence is missing. Refuses: gathering it (`exchange`, `pairing`).
//!
//! A response that stops half-way was cut by the client or by the server, and the socket does not say which. The server
//! learns that its client is gone by reading an end of stream or an error, by `recv(MSG_PEEK)` returning 0, or by a
//! failed write; every such call is seen, so a server that closes *after* one of these saw its client go:
//! `cancelled`. A server that closes half-way *without* any was not told, so it broke off by itself: `server_error`.
//! That is the bias, and it is against the server on purpose: a false alarm can be looked into, a failure filed under
//! "cancelled" is never looked for. A client that only shuts its sending side down and then gets its whole response has
//! cancelled nothing.

use crate::{Status, protocol::ErrorFacts};

/// What put an end to an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The response is complete by its framing.
    Complete,
    /// The process ended a response that has no other end than that.
    Closed,
    /// The connection ended before the response was complete.
    Broken,
    /// The serving process died.
    ServerDied,
    /// Nothing happened for too long.
    Idle,
    /// The core gave it up, or lost sight of it: it carries a reason to be incomplete.
    Lost,
}

/// What is known when an exchange ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    pub(crate) end: End,
    /// Loss touched it.
    pub(crate) incomplete: bool,
    /// The response's status code.
    pub(crate) http_status: Option<u16>,
    /// The response's body reports an error.
    pub(crate) error: Option<ErrorFacts>,
    /// The body says itself that it is whole: `[DONE]`, or a closed JSON document.
    pub(crate) whole: bool,
    /// A choice told why it ended.
    pub(crate) finish_reason: bool,
    /// The server was told that the client is gone.
    pub(crate) client_gone: bool,
}

pub(crate) fn decide(evidence: Evidence) -> Status {
    if evidence.incomplete {
        return Status::Incomplete;
    }
    // Whatever became of the rest: the head has said how it ends.
    match evidence.http_status {
        Some(408 | 504) => return Status::Timeout,
        // nginx's, also sent by engines to whoever is left to read it: the client closed the request.
        Some(499) => return Status::Cancelled,
        Some(400..=498) => return Status::ClientError,
        Some(500..) => return Status::ServerError,
        _ => {}
    }
    if let Some(error) = evidence.error {
        return if error.is_client_error() {
            Status::ClientError
        } else {
            Status::ServerError
        };
    }
    let cut = if evidence.client_gone {
        Status::Cancelled
    } else {
        Status::ServerError
    };
    match evidence.end {
        // Nothing said that it was whole, and nobody was left to read it: llama.cpp ends what it drops by an empty 200.
        End::Complete if evidence.client_gone && !evidence.whole && !evidence.finish_reason => {
            Status::Cancelled
        }
        End::Complete => Status::Ok,
        // Many clients hang up on `[DONE]`, before the last chunk of the framing is written.
        _ if evidence.whole => Status::Ok,
        End::Closed if evidence.finish_reason => Status::Ok,
        End::Closed | End::Broken => cut,
        End::ServerDied => Status::ServerError,
        End::Idle if evidence.client_gone => Status::Cancelled,
        End::Idle => Status::Timeout,
        End::Lost => Status::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_its_status() {
        let none = Evidence {
            end: End::Complete,
            incomplete: false,
            http_status: Some(200),
            error: None,
            whole: false,
            finish_reason: false,
            client_gone: false,
        };
        let server_fault = Some(ErrorFacts {
            code: Some(500),
            blames_request: true,
        });
        let client_fault = Some(ErrorFacts {
            code: Some(400),
            blames_request: false,
        });
        let blamed = Some(ErrorFacts {
            code: None,
            blames_request: true,
        });
        let whole = Evidence { whole: true, ..none };
        for (evidence, expected) in [
            (none, Status::Ok),
            (
                Evidence {
                    http_status: Some(307),
                    ..none
                },
                Status::Ok,
            ),
            (
                Evidence {
                    http_status: Some(404),
                    ..none
                },
                Status::ClientError,
            ),
            (
                Evidence {
                    http_status: Some(404),
                    end: End::Broken,
                    ..none
                },
                Status::ClientError,
            ),
            (
                Evidence {
                    http_status: Some(408),
                    ..none
                },
                Status::Timeout,
            ),
            (
                Evidence {
                    http_status: Some(504),
                    ..none
                },
                Status::Timeout,
            ),
            (
                Evidence {
                    http_status: Some(499),
                    ..none
                },
                Status::Cancelled,
            ),
            (
                Evidence {
                    http_status: Some(500),
                    client_gone: true,
                    end: End::Broken,
                    ..none
                },
                Status::ServerError,
            ),
            (
                Evidence {
                    http_status: Some(999),
                    ..none
                },
                Status::ServerError,
            ),
            (
                Evidence {
                    error: server_fault,
                    ..none
                },
                Status::ServerError,
            ),
            (
                Evidence {
                    error: client_fault,
                    ..none
                },
                Status::ClientError,
            ),
            (
                Evidence {
                    error: blamed,
                    ..none
                },
                Status::ClientError,
            ),
            (
                Evidence {
                    error: Some(ErrorFacts::default()),
                    ..none
                },
                Status::ServerError,
            ),
            (
                Evidence {
                    end: End::Broken,
                    ..none
                },
                Status::ServerError,
            ),
            (
                Evidence {
                    end: End::Broken,
                    http_status: None,
                    ..none
                },
                Status::ServerError,
            ),
            (
                Evidence {
                    end: End::Broken,
                    client_gone: true,
                    ..none
                },
                Status::Cancelled,
            ),
            (
                Evidence {
                    end: End::Broken,
                    client_gone: true,
                    finish_reason: true,
                    ..none
                },
                Status::Cancelled,
            ),
            (
                Evidence {
                    end: End::Broken,
                    client_gone: true,
                    ..whole
                },
                Status::Ok,
            ),
            (
                Evidence {
                    end: End::Closed,
                    ..none
                },
                Status::ServerError,
            ),
            (
                Evidence {
                    end: End::Closed,
                    client_gone: true,
                    ..none
                },
                Status::Cancelled,
            ),
            (
                Evidence {
                    end: End::Closed,
                    finish_reason: true,
                    ..none
                },
                Status::Ok,
            ),
            (
                Evidence {
                    end: End::Closed,
                    ..whole
                },
                Status::Ok,
            ),
            (
                Evidence {
                    end: End::Complete,
                    client_gone: true,
                    ..whole
                },
                Status::Ok,
            ),
            (
                Evidence {
                    end: End::Complete,
                    client_gone: true,
                    ..none
                },
                Status::Cancelled,
            ),
            (
                Evidence {
                    end: End::ServerDied,
                    client_gone: true,
                    ..none
                },
                Status::ServerError,
            ),
            (
                Evidence {
                    end: End::Idle,
                    ..none
                },
                Status::Timeout,
            ),
            (
                Evidence {
                    end: End::Idle,
                    client_gone: true,
                    ..none
                },
                Status::Cancelled,
            ),
            (
                Evidence {
                    end: End::Lost,
                    incomplete: true,
                    ..none
                },
                Status::Incomplete,
            ),
            (
                Evidence {
                    incomplete: true,
                    http_status: Some(500),
                    ..none
                },
                Status::Incomplete,
            ),
        ] {
            assert_eq!(decide(evidence), expected, "{evidence:?}");
        }
    }
}
