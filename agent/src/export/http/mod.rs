//! The one port: metrics, health and the API.
//!
//! Owns: `[server]`, binding, connections and their limits, graceful end. Refuses: TLS and authentication (it is bound to
//! loopback unless told otherwise; put a proxy before it), and what the paths answer (`routes`).

mod negotiate;
mod routes;
mod trace;
mod usage;

pub(crate) use routes::BudgetsAnswer;

use super::Exporter;
use crate::config::Size;
use crate::config_section;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

/// Most records that may be kept.
const MAX_RECENT: usize = 100_000;
/// Most memory for what is drawn beside them.
const MAX_HISTORY: Size = Size::bytes(64 << 20);

config_section! {
    /// The HTTP server: /metrics, /healthz, /readyz and /api/v1.
    pub struct ServerConfig {
        /// Address and port to listen on. Loopback unless told otherwise: there is no authentication, so put a
        /// firewall, a network policy or a proxy before any other address. IPv6 is written "[::]:9464".
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 9464)),
        /// Finished requests that /api/v1/requests remembers, in memory and without content; 0 to 100000. Each takes
        /// 2 KiB at most on average.
        pub recent_requests: usize = 1000,
        /// Memory for the steps and loads of engines and the readings of GPUs that /api/v1/trace draws beside those requests;
        /// 0 to 64MiB. A step takes about 110 bytes, so 8MiB hold those of some minutes; with 0 nothing of it is kept.
        pub history_memory: Size = Size::bytes(8 << 20),
    }
}

impl ServerConfig {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let recent = self.recent_requests;
        let mut out = Vec::new();
        if recent > MAX_RECENT {
            let reason = format!("{recent} is more than {MAX_RECENT}");
            out.push(("server.recent_requests".to_owned(), reason));
        }
        if self.history_memory > MAX_HISTORY {
            let reason = format!("{} is more than {MAX_HISTORY}", self.history_memory);
            out.push(("server.history_memory".to_owned(), reason));
        }
        out
    }
}

/// Why the port could not be had, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens there.
    #[error("address in use: {0}; choose another with --listen")]
    InUse(SocketAddr),
    /// No permission for this port.
    #[error("no permission to listen on {0}; choose a port from 1024 on with --listen")]
    Permission(SocketAddr),
    /// No such address here.
    #[error("{0} is no address of this host; choose another with --listen")]
    NotHere(SocketAddr),
    /// Something else.
    #[error("cannot listen on {0}: {1}; choose another address with --listen")]
    Other(SocketAddr, #[source] io::Error),
}

/// Listens on `address`.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(address),
            io::ErrorKind::PermissionDenied => BindError::Permission(address),
            io::ErrorKind::AddrNotAvailable => BindError::NotHere(address),
            _ => BindError::Other(address, error),
        })
}

/// What a client may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Connections at once; more wait in the listener's queue.
    connections: usize,
    /// Answers that may be large, at once; more wait.
    answers: usize,
    /// How long they wait.
    answer_wait: Duration,
    /// Until a request's head is complete, also while a connection is idle.
    head: Duration,
    /// A connection's life; then it ends after the request in progress.
    lifetime: Duration,
    /// For what is in progress when a connection is to end.
    grace: Duration,
}

const LIMITS: Limits = Limits {
    connections: 64,
    answers: 2,
    answer_wait: Duration::from_secs(5),
    // Prometheus keeps its connection between scrapes, which are up to a few minutes apart; it opens another when this one is gone.
    head: Duration::from_secs(30),
    lifetime: Duration::from_mins(2),
    grace: Duration::from_secs(5),
};

/// Bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Header fields of a request.
const MAX_HEADERS: usize = 64;

/// Wait after a failed accept (out of descriptors, say), so that it does not spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

impl Exporter {
    /// Serves on `listener` until `shutdown` completes; then takes no more connections, lets requests in progress end
    /// (5 s at most) and returns.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        serve(self, listener, shutdown, LIMITS).await;
    }
}

async fn serve(
    exporter: Arc<Exporter>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
    limits: Limits,
) {
    let service = TowerToHyperService::new(routes::router(routes::App::new(exporter, limits)));
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, slot)) => {
                let (service, stopped) = (service.clone(), stopped.clone());
                connections.spawn(async move {
                    connection(stream, service, stopped, limits).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the metrics port; trying again");
                tokio::select! {
                    () = &mut shutdown => break,
                    () = sleep(ACCEPT_RETRY) => {}
                }
            }
        }
    }
    drop(listener);
    // Fails only when no connection is there to be told.
    let _ = stop.send(());
    // Each ends within its grace.
    while connections.join_next().await.is_some() {}
}

/// The next connection, once there is a slot for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots)
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

async fn connection(
    stream: TcpStream,
    service: TowerToHyperService<axum::Router>,
    mut stopped: watch::Receiver<()>,
    limits: Limits,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // A failed connection is the client's matter: it hung up, or sent what is no HTTP.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(limits.lifetime) => {}
        _ = stopped.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.grace, connection).await;
}

#[cfg(test)]
mod tests;
