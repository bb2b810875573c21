//! The Kubernetes API server's pods: lists and watches, as its documentation and its own tests describe them.
//!
//! Owns: versions, pages, the window of changes that a watch may begin in, selectors, rights, and faults. Refuses: objects
//! other than pods, and writing by HTTP: a test changes pods by calls.

mod selection;

use super::{Request, lock, read};
use anyhow::{Result, bail};
use selection::{Selection, decoded};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How a watch ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As when its time is over.
    Clean,
    /// In the middle of a line.
    Torn,
    /// With a line that is no JSON.
    Garbage,
}

/// What a test may set.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The token that is accepted; empty: any, and none.
    pub token: String,
    /// Lists and watches are forbidden.
    pub forbidden: bool,
    /// Lists with `resourceVersion=0` are given in pages as well.
    pub pages_always: bool,
    /// Answers to come instead, in order: status and body.
    pub answers: Vec<(u16, String)>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// The oldest version from which changes are still known.
    oldest: u64,
    pods: BTreeMap<(String, String), Value>,
    /// Version, the pod before and after.
    log: Vec<(u64, Option<Value>, Option<Value>)>,
    rules: Rules,
    requests: Vec<Request>,
    /// How many times watches were ended, and how at last.
    cuts: (u64, Option<Cut>),
    bookmarks: u64,
    over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A cluster, until it is dropped.
#[derive(Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
    address: SocketAddr,
}

/// A running pod.
pub fn pod(namespace: &str, name: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"),
            "creationTimestamp": "2026-05-28T20:26:40Z",
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "env": [{"name": "A", "value": "items\":[{]}"}]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": "2026-05-28T20:26:41Z"},
    })
}

impl Cluster {
    /// Without pods.
    pub fn start() -> Result<Cluster> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        lock(&shared.state).version = 100;
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                if lock(&serving.state).over {
                    return;
                }
                let (Ok(socket), shared) = (socket, Arc::clone(&serving)) else {
                    continue;
                };
                std::thread::spawn(move || {
                    // A client that leaves is no error.
                    let _ = shared.serve(&socket);
                });
            }
        });
        Ok(Cluster { shared, address })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let told = change(&mut lock(&self.shared.state));
        self.shared.changed.notify_all();
        told
    }

    /// Sets what the server does.
    pub fn rules(&self, set: impl FnOnce(&mut Rules)) {
        self.change(|state| set(&mut state.rules));
    }

    /// Makes or changes a pod.
    pub fn apply(&self, pod: Value) {
        self.change(|state| state.apply(pod));
    }

    /// The same, and the watches end while they tell of it.
    pub fn apply_and_cut(&self, pod: Value, how: Cut) {
        self.change(|state| {
            state.apply(pod);
            state.cuts = (state.cuts.0 + 1, Some(how));
        });
    }

    /// Deletes one.
    pub fn delete(&self, namespace: &str, name: &str) {
        self.change(|state| {
            let before = state.pods.remove(&(namespace.to_owned(), name.to_owned()));
            state.version += 1;
            state.log.push((state.version, before, None));
        });
    }

    /// Deletes one and forgets all changes: who watches is told that it is too late.
    pub fn delete_and_forget(&self, namespace: &str, name: &str) {
        self.change(|state| {
            state.pods.remove(&(namespace.to_owned(), name.to_owned()));
            state.version += 1;
            state.log.clear();
            state.oldest = state.version;
        });
    }

    /// Ends the watches that there are.
    pub fn cut(&self, how: Cut) {
        self.change(|state| state.cuts = (state.cuts.0 + 1, Some(how)));
    }

    /// Tells the watches how far they are, after a change that is none of theirs.
    pub fn bookmark(&self) {
        self.change(|state| {
            state.version += 1;
            state.bookmarks += 1;
        });
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.state).requests.clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.change(|state| state.over = true);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn key(pod: &Value) -> (String, String) {
    let text = |name: &str| pod["metadata"][name].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn status(code: u16, message: &str) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        410 => "Expired",
        _ => "BadRequest",
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code})
}

impl Shared {
    fn serve(&self, socket: &TcpStream) -> Result<()> {
        let mut reader = BufReader::new(socket);
        while let Some(mut request) = read(&mut reader, socket)? {
            for value in request.query.values_mut() {
                *value = decoded(value);
            }
            let (selection, watch) = {
                let mut state = lock(&self.state);
                state.requests.push(request.clone());
                match state.refuse(&request) {
                    Some((code, body)) => {
                        drop(state);
                        answer(socket, code, &body)?;
                        continue;
                    }
                    None => (
                        Selection::of(&request),
                        request.query.get("watch").is_some_and(|on| on == "1"),
                    ),
                }
            };
            match selection {
                Err((code, message)) => answer(socket, code, &status(code, &message).to_string())?,
                Ok(selection) if watch => return self.watch(socket, &request, &selection),
                Ok(selection) => {
                    let listed = lock(&self.state).list(&request, &selection);
                    let (code, body) = listed.map_or_else(
                        |(code, message)| (code, status(code, &message)),
                        |list| (200, list),
                    );
                    answer(socket, code, &body.to_string())?;
                }
            }
        }
        Ok(())
    }

    fn watch(&self, mut socket: &TcpStream, request: &Request, selection: &Selection) -> Result<()> {
        let number = |name: &str| request.query.get(name).and_then(|text| text.parse::<u64>().ok());
        let Some(mut at) = number("resourceVersion") else {
            bail!("a watch without a version is of another kind than this server knows");
        };
        let bookmarks_wanted = request
            .query
            .get("allowWatchBookmarks")
            .is_some_and(|on| on == "true");
        let until = Instant::now() + Duration::from_secs(number("timeoutSeconds").unwrap_or(1800));
        socket.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        let mut send = |text: &str| write!(socket, "{:x}\r\n{text}\r\n", text.len());
        let mut state = lock(&self.state);
        let (cuts, mut bookmarks) = (state.cuts.0, state.bookmarks);
        loop {
            if at < state.oldest {
                let message = format!("too old resource version: {at} ({})", state.oldest);
                let line = json!({"type": "ERROR", "object": status(410, &message)});
                send(&format!("{line}\n"))?;
                break;
            }
            let mut text = String::new();
            for (version, before, after) in state.log.iter().filter(|(version, ..)| *version > at) {
                let (was, is) = [before, after]
                    .map(|pod| pod.as_ref().filter(|pod| selection.has(pod)))
                    .into();
                let (kind, pod) = match (was, is) {
                    (None, Some(pod)) => ("ADDED", pod),
                    (Some(_), Some(pod)) => ("MODIFIED", pod),
                    (Some(pod), None) => ("DELETED", pod),
                    (None, None) => continue,
                };
                let mut pod = pod.clone();
                pod["metadata"]["resourceVersion"] = version.to_string().into();
                text += &format!("{}\n", json!({"type": kind, "object": pod}));
            }
            at = state.version.max(at);
            if state.bookmarks > bookmarks && bookmarks_wanted {
                let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": at.to_string(),
                    "creationTimestamp": null}, "spec": {"containers": null}, "status": {}});
                text += &format!("{}\n", json!({"type": "BOOKMARK", "object": object}));
            }
            bookmarks = state.bookmarks;
            let cut = state.cuts.1.filter(|_| state.cuts.0 > cuts);
            match cut {
                Some(Cut::Torn) => text.truncate(text.len() / 2),
                Some(Cut::Garbage) => text = "{\"type\":\"ADDED\",\"obj\n".to_owned(),
                _ => {}
            }
            if !text.is_empty() {
                send(&text)?;
            }
            if cut == Some(Cut::Torn) {
                // The connection breaks, with the body unfinished.
                return Ok(());
            }
            if cut.is_some() || state.over || Instant::now() >= until {
                break;
            }
            let rest = until
                .saturating_duration_since(Instant::now())
                .min(Duration::from_secs(1));
            state = self
                .changed
                .wait_timeout(state, rest)
                .map_or_else(|error| error.into_inner().0, |told| told.0);
        }
        send("")?;
        Ok(())
    }
}

impl State {
    fn apply(&mut self, mut pod: Value) {
        self.version += 1;
        pod["metadata"]["resourceVersion"] = self.version.to_string().into();
        let before = self.pods.insert(key(&pod), pod.clone());
        self.log.push((self.version, before, Some(pod)));
    }

    fn refuse(&mut self, request: &Request) -> Option<(u16, String)> {
        if !self.rules.answers.is_empty() {
            return Some(self.rules.answers.remove(0));
        }
        let refused = |code, message: &str| Some((code, status(code, message).to_string()));
        if request.method != "GET" {
            return refused(
                405,
                "the server does not allow this method on the requested resource",
            );
        }
        let token = &self.rules.token;
        if !token.is_empty() && request.header("authorization") != format!("Bearer {token}") {
            return refused(401, "Unauthorized");
        }
        if self.rules.forbidden {
            return refused(
                403,
                "pods is forbidden: User \"system:serviceaccount:infertap:infertap\" cannot list resource \"pods\" in API group \
                 \"\" at the cluster scope",
            );
        }
        None
    }

    fn list(&self, request: &Request, selection: &Selection) -> Result<Value, (u16, String)> {
        let text = |name: &str| request.query.get(name).map_or("", String::as_str);
        let (version, page) = (text("resourceVersion"), text("continue"));
        let bad = |message: &str| Err((400, message.to_owned()));
        if !page.is_empty() && !version.is_empty() {
            return bad("specifying resource version is not allowed when using continue");
        }
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return bad("invalid resource version");
        }
        // Out of the server's memory there are no pages.
        let limit = match text("limit").parse::<usize>() {
            Ok(limit) if version != "0" || self.rules.pages_always => limit,
            _ => usize::MAX,
        };
        let (at, from) = match page.split_once(':') {
            Some((at, from)) => (at.parse().unwrap_or(0), from.parse().unwrap_or(0)),
            None => (self.version, 0),
        };
        if at < self.oldest {
            let message = "The provided continue parameter is too old to display a consistent list result.";
            return Err((410, message.to_owned()));
        }
        let all: Vec<&Value> = self.pods.values().filter(|pod| selection.has(pod)).collect();
        let items: Vec<&&Value> = all.iter().skip(from).take(limit).collect();
        let next = from + items.len();
        let mut metadata = json!({"resourceVersion": at.to_string()});
        if next < all.len() {
            metadata["continue"] = format!("{at}:{next}").into();
            metadata["remainingItemCount"] = (all.len() - next).into();
        }
        Ok(json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}))
    }
}

fn answer(mut socket: &TcpStream, code: u16, body: &str) -> Result<()> {
    let length = body.len();
    write!(
        socket,
        "HTTP/1.1 {code} -\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    Ok(())
}
