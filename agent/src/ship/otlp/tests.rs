//! The exporter against a receiver that refuses what real ones refuse.

use super::receiver::{Act, Receiver};
use super::*;
use crate::config::Span;
use crate::export::metrics::lock;
use crate::ship::testing::{Fate, fate, kept};
use crate::ship::{Outcome, Outlet, Outlets};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::{Code, Status};

const SOON: Duration = Duration::from_secs(30);
const PROTOCOLS: [OtlpProtocol; 2] = [OtlpProtocol::Http, OtlpProtocol::Grpc];

struct Running {
    outlets: Outlets,
    receiver: Receiver,
}

impl Running {
    fn outlet(&self) -> Arc<Outlet> {
        self.outlets.list().remove(0)
    }

    fn offer(&self, ids: std::ops::RangeInclusive<u64>) {
        for id in ids {
            self.outlets.offer(&Arc::new(kept(&format!("{id:016x}"))));
        }
    }

    async fn until(&self, outcome: Outcome, count: u64) {
        self.when(&format!("{count} {}", outcome.as_str()), |outlet| {
            outlet.counted(outcome) >= count
        })
        .await;
    }

    async fn when(&self, what: &str, condition: impl Fn(&Outlet) -> bool) {
        let end = Instant::now() + SOON;
        while !condition(&self.outlet()) {
            assert!(
                Instant::now() < end,
                "{what} did not come: {:?}",
                lock(&self.receiver.seen)
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let count = |outcome: Outcome| (outcome.as_str(), self.outlet().counted(outcome));
        Outcome::ALL
            .map(count)
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn refused(&self) -> Vec<String> {
        lock(&self.receiver.seen).refused.clone()
    }

    fn attempts(&self) -> usize {
        lock(&self.receiver.seen).attempts
    }
}

fn config(protocol: OtlpProtocol, scheme: &str, address: SocketAddr) -> OtlpConfig {
    OtlpConfig {
        protocol,
        endpoint: format!("{scheme}://{address}"),
        batch_wait: Span::millis(10),
        batch_records: 8,
        timeout: Span::seconds(20),
        ..OtlpConfig::default()
    }
}

/// The exporter and a receiver without TLS.
async fn running(
    protocol: OtlpProtocol,
    receiver: Receiver,
    change: impl FnOnce(&mut OtlpConfig),
) -> Running {
    let address = match protocol {
        OtlpProtocol::Http => receiver.http(None).await,
        OtlpProtocol::Grpc => receiver.grpc(None).await,
    };
    let mut config = config(protocol, "http", address);
    change(&mut config);
    assert_eq!(config.invalid(), []);
    let outlets = Outlets::default();
    start(&config, "node-1", &outlets).expect("starts");
    Running { outlets, receiver }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_arrive_compressed_or_not() {
    for protocol in PROTOCOLS {
        for gzip in [true, false] {
            let run = running(protocol, Receiver::new([]), |config| config.gzip = gzip).await;
            run.offer(1..=20);
            run.until(Outcome::Sent, 20).await;
            assert_eq!(
                run.receiver.records(),
                (1..=20).collect::<Vec<_>>(),
                "{protocol:?}"
            );
            assert_eq!(
                (run.refused(), run.counts()),
                (vec![], vec![("sent", 20)]),
                "{protocol:?}"
            );
            let seen = lock(&run.receiver.seen);
            assert_eq!(
                seen.compressed,
                if gzip { seen.attempts } else { 0 },
                "{protocol:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_that_pass_lose_nothing_and_refusals_are_counted() {
    for protocol in PROTOCOLS {
        let script = match protocol {
            OtlpProtocol::Http => [Act::Fail(503, Some(1)), Act::Fail(400, None)],
            OtlpProtocol::Grpc => [
                Act::Status(Status::unavailable("busy")),
                Act::Status(Status::invalid_argument("no")),
            ],
        };
        let script = [
            script[0].clone(),
            Act::Look,
            script[1].clone(),
            Act::Reject(2),
            Act::Look,
        ];
        let run = running(protocol, Receiver::new(script), |_| {}).await;
        let begun = Instant::now();
        run.offer(1..=3);
        run.until(Outcome::Sent, 3).await;
        assert!(
            begun.elapsed() >= Duration::from_millis(500),
            "{protocol:?}: it is not hammered"
        );
        run.offer(4..=5);
        run.until(Outcome::Refused, 2).await;
        run.offer(6..=8);
        run.until(Outcome::Rejected, 2).await;
        run.offer(9..=9);
        run.until(Outcome::Sent, 5).await;
        assert_eq!(
            run.counts(),
            [("sent", 5), ("rejected", 2), ("refused", 2)],
            "{protocol:?}"
        );
        assert_eq!(run.receiver.records(), [1, 2, 3, 9], "{protocol:?}");
        assert_eq!(run.outlet().failures(), 2, "{protocol:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_halved() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::new([]);
        // Room for two or three records.
        lock(&receiver.demands).max_bytes = 3000;
        let run = running(protocol, receiver, |_| {}).await;
        run.offer(1..=16);
        run.until(Outcome::Sent, 16).await;
        assert_eq!(
            run.receiver.records(),
            (1..=16).collect::<Vec<_>>(),
            "{protocol:?}"
        );
        assert!(run.outlet().failures() > 2, "{protocol:?}");
        let mut large = kept("00000000000000ff");
        large.rules = vec!["x".repeat(4000)];
        run.outlets.offer(&Arc::new(large));
        run.until(Outcome::TooLarge, 1).await;
        run.offer(17..=17);
        run.until(Outcome::Sent, 17).await;
        assert_eq!(run.counts(), [("sent", 17), ("too_large", 1)], "{protocol:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_hangs_is_given_up_and_tried_again() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::new([Act::Hang]);
        let run = running(protocol, receiver, |config| config.timeout = Span::millis(200)).await;
        run.offer(1..=3);
        run.until(Outcome::Sent, 3).await;
        assert_eq!((run.outlet().failures(), run.attempts()), (1, 2), "{protocol:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_on_which_nobody_answers_is_left() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::new([]);
        let behind = match protocol {
            OtlpProtocol::Http => receiver.http(None).await,
            OtlpProtocol::Grpc => receiver.grpc(None).await,
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            // The first is as of one who has vanished: open, and silent.
            let _dead = listener.accept().await.expect("a connection");
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut receiver = tokio::net::TcpStream::connect(behind).await.expect("connects");
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut receiver).await });
            }
        });
        let outlets = Outlets::default();
        let config = OtlpConfig {
            timeout: Span::seconds(1),
            ..config(protocol, "http", address)
        };
        start(&config, "node-1", &outlets).expect("starts");
        let run = Running { outlets, receiver };
        run.offer(1..=3);
        run.until(Outcome::Sent, 3).await;
        assert!(run.outlet().failures() >= 1, "{protocol:?}: the first is silent");
        let mut records = run.receiver.records();
        // On a busy machine an attempt that arrives may be given up too.
        records.dedup();
        assert_eq!(records, [1, 2, 3], "{protocol:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_rotated_is_read_again() {
    for protocol in PROTOCOLS {
        let folder = tempfile::tempdir().expect("a folder");
        let token = folder.path().join("token");
        let set = |text: &str| std::fs::write(&token, text).expect("writes");
        let receiver = Receiver::new([]);
        let ask = |text: &str| lock(&receiver.demands).authorization = Some(format!("Bearer {text}"));
        set("s3cret-1");
        ask("s3cret-1");
        let run = running(protocol, receiver.clone(), |config| {
            config.bearer_token_file.clone_from(&token);
        })
        .await;
        run.offer(1..=2);
        run.until(Outcome::Sent, 2).await;
        // Both change: no attempt fails.
        set("s3cret-2");
        ask("s3cret-2");
        run.offer(3..=4);
        run.until(Outcome::Sent, 4).await;
        assert_eq!(run.counts(), [("sent", 4)], "{protocol:?}");
        // Only the receiver's does, then the file is gone too: nothing is lost for what an operator mends.
        ask("s3cret-3");
        run.offer(5..=5);
        run.when("a failure", |outlet| outlet.failures() >= 1).await;
        std::fs::remove_file(&token).expect("removes");
        run.offer(6..=6);
        run.when("a failure", |outlet| outlet.failures() >= 2).await;
        assert_eq!(run.outlet().waiting().0, 2, "{protocol:?}");
        set("s3cret-3");
        run.until(Outcome::Sent, 6).await;
        assert_eq!(run.counts(), [("sent", 6)], "{protocol:?}");
        assert_eq!(run.receiver.records(), [1, 2, 3, 4, 5, 6], "{protocol:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_there_yet_is_waited_for() {
    for protocol in PROTOCOLS {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = free.local_addr().expect("an address");
        drop(free);
        let outlets = Outlets::default();
        start(&config(protocol, "http", address), "node-1", &outlets).expect("starts");
        let run = Running {
            outlets,
            receiver: Receiver::new([]),
        };
        run.offer(1..=3);
        run.when("a failure", |outlet| outlet.failures() >= 1).await;
        assert_eq!(
            (run.outlet().waiting().0, run.counts()),
            (3, vec![]),
            "{protocol:?}"
        );
    }
}

#[test]
fn what_a_status_repeats_of_credentials_is_not_told() {
    for code in [Code::Unauthenticated, Code::InvalidArgument, Code::Unavailable] {
        let verdict = status::verdict(&Status::new(code, "Bearer s3cret: no"), &secret());
        let reason = verdict.reason().expect("a reason");
        assert!(reason.ends_with("*: no"), "{reason}");
    }
}

#[test]
fn no_status_makes_a_record_wait_for_ever_but_for_what_an_operator_can_mend() {
    for (codes, expected) in [
        (&[Code::Unauthenticated, Code::Unimplemented][..], Fate::Blocks),
        (&[Code::PermissionDenied, Code::Unavailable], Fate::Passed),
        (
            &[
                Code::Cancelled,
                Code::DeadlineExceeded,
                Code::Aborted,
                Code::OutOfRange,
                Code::DataLoss,
            ],
            Fate::Lost,
        ),
    ] {
        for &code in codes {
            let status = Status::new(code, "x");
            let judged = |_| status::verdict(&status, &secret());
            assert_eq!(fate(judged), expected, "{code:?}");
        }
    }
    let full = Status::new(
        Code::ResourceExhausted,
        "grpc: received message larger than max (5 vs. 4)",
    );
    assert_eq!(fate(|_| status::verdict(&full, &secret())), Fate::Lost);
}

fn secret() -> reqwest::header::HeaderMap {
    let mut value = reqwest::header::HeaderValue::from_static("Bearer s3cret");
    value.set_sensitive(true);
    reqwest::header::HeaderMap::from_iter([(reqwest::header::AUTHORIZATION, value)])
}
