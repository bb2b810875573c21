//! One watch: all pods of a namespace or of the cluster, then what changes of them.
//!
//! Owns: the order of lists and watches, and what follows from their ends and errors. Refuses: the server's words (`events`).
//!
//! The first list is asked for with `resourceVersion=0`: it comes out of the API server's memory and not out of its store,
//! at once and somewhat older, and what has changed since is told by the watch. After "too old" a list is asked for that is
//! not older than the question, since what the server has in memory was what was too old.

use super::api::{Api, Failure, SILENCE, scope};
use super::events::{Lines, List, Told};
use super::items::Items;
use super::state::{PodDocument, Shared};
use super::{PodBatch, PodsStatus, Reason, Sink};
use crate::ship::Backoff;
use infertap_core::pods::PodChange;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// Pods that have ended are not told, and not watched.
const FIELDS: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Pods in a page, where the server gives pages: what comes out of its memory comes as a whole.
const PAGE: &str = "500";
/// How long a watch is asked for, seconds; the first, by chance up to as much more: agents do not come back all at once.
const WATCH: u64 = 300;
/// A watch that tells nothing and ends sooner counts as one that failed.
const SHORT: Duration = Duration::from_secs(1);

pub(super) struct Watch {
    pub(super) api: Api,
    pub(super) source: u16,
    pub(super) namespace: Option<String>,
    pub(super) selector: String,
    pub(super) status: Arc<PodsStatus>,
    pub(super) sink: Sink,
    pub(super) room: Arc<Semaphore>,
}

/// What of a watch goes on.
struct Following<'a> {
    labels: &'a [Arc<str>],
    shared: Shared,
    backoff: Backoff,
    /// Told as failing.
    failing: Option<Reason>,
}

impl Watch {
    /// Never ends, unless nobody is left to want labels.
    pub(super) async fn run(self, mut labels: watch::Receiver<Arc<[Arc<str>]>>) {
        loop {
            let wanted = Arc::clone(&labels.borrow_and_update());
            tokio::select! {
                () = self.follow(&wanted) => {}
                changed = labels.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn follow(&self, labels: &[Arc<str>]) {
        let mut following = Following {
            labels,
            shared: Shared::default(),
            backoff: Backoff::new(crate::clock::monotonic_ns()),
            failing: None,
        };
        // Not older than now; else out of the server's memory.
        let mut newest = false;
        let mut seconds = WATCH + crate::clock::monotonic_ns() % WATCH;
        loop {
            let mut version = match self.list(newest, &mut following).await {
                Ok(version) => version,
                Err(failure) => {
                    newest |= failure.reason == Reason::Expired;
                    self.failed(&failure, &mut following).await;
                    continue;
                }
            };
            self.works(&mut following);
            loop {
                let (began, from) = (Instant::now(), version.clone());
                let ended = self.watch(&mut version, seconds, &mut following).await;
                seconds = WATCH;
                match ended {
                    Ok(()) if from == version && began.elapsed() < SHORT => {
                        let failure = Failure::new(Reason::Connection, "it ends each watch at once");
                        self.failed(&failure, &mut following).await;
                    }
                    Ok(()) => {
                        newest = false;
                        following.backoff.reset();
                        self.works(&mut following);
                    }
                    Err(failure) => {
                        if from != version {
                            following.backoff.reset();
                        }
                        let expired = failure.reason == Reason::Expired;
                        let again = std::mem::replace(&mut newest, expired);
                        let lost = expired || failure.reason == Reason::Malformed;
                        if expired && !again {
                            // Part of the protocol: asked for again at once, unless that did not help.
                            self.status.failed(failure.reason);
                            tracing::info!("pods of {} are listed again: {}", self.scope(), failure.told);
                        } else {
                            self.failed(&failure, &mut following).await;
                        }
                        if lost {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn scope(&self) -> String {
        scope(self.namespace.as_deref(), &self.selector)
    }

    fn works(&self, following: &mut Following<'_>) {
        if following.failing.take().is_some() {
            tracing::info!("the API server tells of pods of {} again", self.scope());
        }
    }

    /// Counts, tells people where it is news, and waits.
    async fn failed(&self, failure: &Failure, following: &mut Following<'_>) {
        self.status.failed(failure.reason);
        if following.failing != Some(failure.reason) {
            following.failing = Some(failure.reason);
            tracing::warn!(
                "the API server does not tell of pods of {}: {}; asking again, those known before are kept",
                self.scope(),
                failure.told
            );
        }
        tokio::time::sleep(following.backoff.next(failure.wait)).await;
    }

    fn query<'q>(&'q self, more: &[(&'q str, &'q str)]) -> Vec<(&'q str, &'q str)> {
        let mut query = vec![("fieldSelector", FIELDS)];
        if !self.selector.is_empty() {
            query.push(("labelSelector", &self.selector));
        }
        query.extend(more);
        query
    }

    /// Tells all pods; gives the state of the cluster that they are of.
    async fn list(&self, newest: bool, following: &mut Following<'_>) -> Result<String, Failure> {
        let malformed =
            |why: &str| Failure::new(Reason::Malformed, format!("its list of pods is not one: {why}"));
        self.tell(vec![PodChange::ListBegins { source: self.source }])
            .await;
        let mut next = String::new();
        loop {
            let mut more = vec![("limit", PAGE)];
            if !next.is_empty() {
                more.push(("continue", &next));
            } else if !newest {
                more.push(("resourceVersion", "0"));
            }
            let mut answer = self
                .api
                .pods(self.namespace.as_deref(), &self.query(&more))
                .await?;
            let mut items = Items::default();
            loop {
                let chunk = tokio::time::timeout(SILENCE, answer.chunk()).await;
                let Some(chunk) = chunk.map_err(|_| Failure::silent())?.map_err(Failure::of_error)? else {
                    break;
                };
                let mut changes = Vec::new();
                items
                    .feed(
                        &chunk,
                        &mut |item| match item.map(serde_json::from_slice::<PodDocument>) {
                            Some(Ok(pod)) => changes.push(self.present(&pod, following)),
                            Some(Err(_)) => self.status.failed(Reason::Malformed),
                            None => self.status.failed(Reason::Oversize),
                        },
                    )
                    .map_err(|reason| Failure::new(reason, "its list of pods is not one"))?;
                self.tell(changes).await;
            }
            let rest = items.end().map_err(|_| malformed("it breaks off"))?;
            let list: List = serde_json::from_slice(rest).map_err(|error| malformed(&error.to_string()))?;
            let list = list.metadata;
            if list.next.is_empty() {
                if list.resource_version.is_empty() {
                    return Err(malformed("it has no resourceVersion"));
                }
                self.tell(vec![PodChange::ListEnds { source: self.source }]).await;
                self.status.told();
                return Ok(list.resource_version);
            }
            if list.next == next {
                return Err(malformed("a page comes after itself"));
            }
            next = list.next;
        }
    }

    /// Tells what changes from `version` on, which is moved with it, until the server ends the watch.
    async fn watch(
        &self,
        version: &mut String,
        seconds: u64,
        following: &mut Following<'_>,
    ) -> Result<(), Failure> {
        let (from, timeout) = (version.clone(), seconds.to_string());
        let query = self.query(&[
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", &from),
            ("timeoutSeconds", &timeout),
        ]);
        let mut answer = self.api.pods(self.namespace.as_deref(), &query).await?;
        let mut lines = Lines::default();
        // It ends by itself; after that, it is gone.
        let silence = Duration::from_secs(seconds) + SILENCE;
        loop {
            let chunk = tokio::time::timeout(silence, answer.chunk()).await;
            let Some(chunk) = chunk.map_err(|_| Failure::silent())?.map_err(Failure::of_error)? else {
                // A line that has no end is told again by the next watch.
                return Ok(());
            };
            let (mut changes, mut reached) = (Vec::new(), None);
            let read = lines.feed(&chunk, &mut |line| {
                let Some(line) = line else {
                    self.status.failed(Reason::Oversize);
                    return Ok(());
                };
                let at = match Told::read(line)? {
                    Told::Present(pod) => {
                        changes.push(self.present(&pod, following));
                        pod.version().to_owned()
                    }
                    Told::Gone(pod) => {
                        let (namespace, name) = pod.names();
                        changes.push(PodChange::Gone {
                            namespace: following.shared.get(namespace),
                            name: name.into(),
                        });
                        pod.version().to_owned()
                    }
                    Told::Bookmark(at) => at,
                };
                if !at.is_empty() {
                    reached = Some(at);
                }
                Ok(())
            });
            if reached.is_some() {
                self.status.told();
            }
            self.tell(changes).await;
            if let Some(reached) = reached {
                *version = reached;
            }
            read?;
        }
    }

    fn present(&self, pod: &PodDocument, following: &mut Following<'_>) -> PodChange {
        PodChange::Present {
            source: self.source,
            state: pod.state(following.labels, &mut following.shared),
        }
    }

    async fn tell(&self, changes: Vec<PodChange>) {
        if changes.is_empty() {
            return;
        }
        // Closed by nobody.
        if let Ok(room) = Arc::clone(&self.room).acquire_owned().await {
            (self.sink)(PodBatch { changes, _room: room });
        }
    }
}
