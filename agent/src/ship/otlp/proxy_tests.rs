//! What becomes of a batch over gRPC when a proxy answers in the collector's place.

use super::*;
use crate::config::Span;
use crate::ship::testing::kept;
use crate::ship::{Destination as _, Fault, Verdict};
use axum::Router;
use axum::http::StatusCode;
use std::sync::Arc;

const PAGE: &str = "<html><body>not from a collector</body></html>";

/// Answers all that it is asked in HTTP/2 with this.
async fn answering(status: u16, page: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    let status = StatusCode::from_u16(status).expect("a status");
    let app = Router::new().fallback(move || async move { (status, page) });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(app.clone());
            let io = hyper_util::rt::TokioIo::new(stream);
            let executor = hyper_util::rt::TokioExecutor::new();
            tokio::spawn(hyper::server::conn::http2::Builder::new(executor).serve_connection(io, service));
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_proxies_mean_what_they_mean_over_http() {
    for (status, expected) in [
        (200, "retry Unclear"),
        (302, "retry Load"),
        (401, "retry Destination"),
        (403, "retry Load"),
        (404, "retry Destination"),
        (413, "too large"),
        (429, "retry Load"),
        (502, "retry Unclear"),
        (503, "retry Load"),
        (504, "retry Unclear"),
        (400, "refused"),
    ] {
        for page in [PAGE, "", "no"] {
            let config = OtlpConfig {
                endpoint: answering(status, page).await,
                protocol: OtlpProtocol::Grpc,
                timeout: Span::seconds(10),
                ..OtlpConfig::default()
            };
            let destination = over_grpc(&config);
            let batch = destination.encode(&[Arc::new(kept("00000000000000ab"))]);
            let verdict = destination.send(&batch).await;
            let is = match &verdict {
                Verdict::Retry {
                    fault: Fault::Unclear,
                    ..
                } => "retry Unclear",
                Verdict::Retry {
                    fault: Fault::Load, ..
                } => "retry Load",
                Verdict::Retry {
                    fault: Fault::Destination,
                    ..
                } => "retry Destination",
                Verdict::TooLarge { .. } => "too large",
                Verdict::Refused { .. } => "refused",
                _ => "else",
            };
            // What two bytes of an answer are can't be told from their status.
            if page == "no" {
                assert!(
                    is == expected || is == "retry Unclear",
                    "{status} {page:?}: {verdict:?}"
                );
            } else {
                assert_eq!(is, expected, "{status} {page:?}: {verdict:?}");
            }
        }
    }
}
