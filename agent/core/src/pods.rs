//! Which pod has which address: what the Kubernetes API server tells, kept for the clients of requests.
//!
//! Owns: what is kept of a pod, which of several pods an address is of, and the bound on all of it. Refuses: asking the
//! API server (the agent's), and naming a client by an address that may be of more than one pod: those of hosts.
//!
//! Addresses are used again: a pod that has ended keeps its address in the API until it is deleted, and another may have
//! it by then. Of the pods that have not ended, the one that started last has it.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

/// Pods that are kept unless another number is configured.
pub const DEFAULT_MAX_PODS: usize = 20_000;
/// Most addresses of one pod: one for each IP family, and some to spare.
const MAX_ADDRESSES: usize = 8;
/// Longest text that is kept of a pod, bytes: the longest name that Kubernetes allows.
const MAX_TEXT: usize = 253;

/// What a pod belongs to: its controller, or what that was made by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Kind, as in `Deployment`.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// A pod, as far as requests are told about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name, unique in its namespace.
    pub name: Arc<str>,
    /// What it belongs to; absent for a pod that somebody made by hand.
    pub workload: Option<Workload>,
    /// Those of its labels that rules ask for.
    pub labels: Vec<(Arc<str>, Box<str>)>,
}

impl Pod {
    /// The value of a label that is kept.
    pub fn label(&self, name: &str) -> Option<&str> {
        let (_, value) = self.labels.iter().find(|(known, _)| **known == *name)?;
        Some(value)
    }
}

/// The state of a pod, as the API server tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    /// Which pod.
    pub pod: Pod,
    /// Its addresses; empty before it has one.
    pub addresses: Vec<IpAddr>,
    /// When it started, else when it was made; Unix time, seconds.
    pub started: i64,
    /// It has no address of its own: it shares that of its host.
    pub host_network: bool,
    /// All its containers have ended for good, so that its addresses are free.
    pub finished: bool,
}

/// What is told of pods. Several sources (watched namespaces) may tell of different pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodChange {
    /// A pod is there, or has changed.
    Present {
        /// Number of the source that tells.
        source: u16,
        /// The pod.
        state: PodState,
    },
    /// A pod was deleted.
    Gone {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Arc<str>,
    },
    /// All pods of a source are told from here on.
    ListBegins {
        /// Number of the source.
        source: u16,
    },
    /// All were told: those of the source that were not are gone.
    ListEnds {
        /// Number of the source.
        source: u16,
    },
}

/// A pod that has an address.
#[derive(Debug)]
struct Holder {
    started: i64,
    /// Later told, larger.
    told: u64,
    key: Arc<str>,
    pod: Arc<Pod>,
}

#[derive(Debug)]
struct Known {
    source: u16,
    /// Told before the list that its source is telling, and not yet in that.
    stale: bool,
    addresses: Box<[IpAddr]>,
    bytes: usize,
}

/// What the map holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodStats {
    /// Pods with an address of their own.
    pub pods: usize,
    /// Pods that found no room, each time that one was told.
    pub refused: u64,
}

/// Address → pod.
#[derive(Debug)]
pub struct Pods {
    max: usize,
    /// `namespace/name` → where it stands.
    known: HashMap<Arc<str>, Known>,
    /// Mostly one; the last has the address.
    by_address: HashMap<IpAddr, Vec<Holder>>,
    /// Sources that are telling all their pods.
    listing: BTreeSet<u16>,
    /// Of the known: how many are stale, at most `max`.
    stale: usize,
    told: u64,
    refused: u64,
    bytes: usize,
}

impl Pods {
    /// Nothing is known; at most `max` pods are at once, and beside them, while a source tells all its pods, at most `max`
    /// that were known before and that it has not told yet.
    pub fn new(max: usize) -> Pods {
        Pods {
            max,
            known: HashMap::new(),
            by_address: HashMap::new(),
            listing: BTreeSet::new(),
            stale: 0,
            told: 0,
            refused: 0,
            bytes: 0,
        }
    }

    /// The pod that has an address now.
    pub fn of(&self, address: IpAddr) -> Option<&Arc<Pod>> {
        // Most agents know no pods.
        if self.by_address.is_empty() {
            return None;
        }
        let holders = self.by_address.get(&address.to_canonical())?;
        Some(&holders.last()?.pod)
    }

    /// What it holds.
    pub fn stats(&self) -> PodStats {
        PodStats {
            pods: self.known.len(),
            refused: self.refused,
        }
    }

    /// Heap bytes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes what was told.
    pub fn apply(&mut self, change: &PodChange) {
        match change {
            PodChange::Present { source, state } => self.present(*source, state),
            PodChange::Gone { namespace, name } => {
                self.forget(&key(namespace, name));
            }
            PodChange::ListBegins { source } => self.list_begins(*source),
            PodChange::ListEnds { source } => {
                if self.listing.remove(source) {
                    self.forget_where(|known| known.source == *source && known.stale, usize::MAX);
                }
            }
        }
    }

    fn list_begins(&mut self, source: u16) {
        self.listing.insert(source);
        let fresh = |known: &Known| known.source == source && !known.stale;
        let more = self.known.values().filter(|known| fresh(known)).count();
        // Lists that never end would add up: what was stale before goes.
        let excess = (self.stale + more).saturating_sub(self.max);
        self.forget_where(|known| known.stale, excess);
        for known in self.known.values_mut().filter(|known| fresh(known)) {
            known.stale = true;
        }
        self.stale += more;
    }

    fn present(&mut self, source: u16, state: &PodState) {
        let key = key(&state.pod.namespace, &state.pod.name);
        let addresses: Box<[IpAddr]> = if state.host_network || state.finished || !sound(&state.pod) {
            Box::default()
        } else {
            let mut addresses: Vec<IpAddr> = Vec::new();
            for address in state.addresses.iter().map(IpAddr::to_canonical) {
                if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            addresses.into()
        };
        // Its place is free again whatever it is told as.
        self.forget(&key);
        if addresses.is_empty() {
            return;
        }
        // Those that are stale will mostly be told again, or be gone when the list ends: they take nobody's place.
        if self.known.len() - self.stale >= self.max {
            self.refused += 1;
            return;
        }
        let pod = Arc::new(state.pod.clone());
        self.told += 1;
        for address in &addresses {
            let holders = self.by_address.entry(*address).or_default();
            holders.push(Holder {
                started: state.started,
                told: self.told,
                key: Arc::clone(&key),
                pod: Arc::clone(&pod),
            });
            holders.sort_by_key(|holder| (holder.started, holder.told));
        }
        let bytes = heap_bytes(&key, &pod, addresses.len());
        self.bytes += bytes;
        self.known.insert(
            key,
            Known {
                source,
                stale: false,
                addresses,
                bytes,
            },
        );
    }

    fn forget(&mut self, key: &str) {
        let Some(known) = self.known.remove(key) else {
            return;
        };
        self.bytes -= known.bytes;
        self.stale -= usize::from(known.stale);
        for address in &known.addresses {
            if let Some(holders) = self.by_address.get_mut(address) {
                holders.retain(|holder| *holder.key != *key);
                if holders.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
    }

    fn forget_where(&mut self, which: impl Fn(&Known) -> bool, most: usize) {
        let gone: Vec<Arc<str>> = self
            .known
            .iter()
            .filter(|(_, known)| which(known))
            .take(most)
            .map(|(key, _)| Arc::clone(key))
            .collect();
        for key in gone {
            self.forget(&key);
        }
    }
}

/// Neither a namespace nor a name can have a slash.
fn key(namespace: &str, name: &str) -> Arc<str> {
    format!("{namespace}/{name}").into()
}

/// Its texts are no longer than Kubernetes allows, and are names.
fn sound(pod: &Pod) -> bool {
    let workload = pod
        .workload
        .iter()
        .flat_map(|workload| [&workload.kind, &workload.name]);
    let labels = pod.labels.iter().map(|(_, value)| &**value);
    let names = [&pod.namespace, &pod.name]
        .into_iter()
        .chain(workload)
        .map(|text| &**text);
    names
        .map(|name| (name, false))
        .chain(labels.map(|value| (value, true)))
        .all(|(text, may_be_empty)| {
            (may_be_empty || !text.is_empty())
                && text.len() <= MAX_TEXT
                && !text.chars().any(char::is_control)
        })
}

fn heap_bytes(key: &str, pod: &Pod, addresses: usize) -> usize {
    // Two counters stand before what an `Arc` holds; a map keeps about a quarter of its places free.
    let text = |len: usize| len + 2 * size_of::<usize>();
    let entry = (size_of::<Arc<str>>() + size_of::<Known>()) * 5 / 4;
    let holder = (size_of::<IpAddr>() + size_of::<Vec<Holder>>()) * 5 / 4 + 4 * size_of::<Holder>() / 2;
    let labels: usize = pod
        .labels
        .iter()
        .map(|(_, value)| value.len() + size_of::<(Arc<str>, Box<str>)>())
        .sum();
    // Namespaces, kinds and names of labels are shared by many.
    let workload = pod
        .workload
        .as_ref()
        .map_or(0, |workload| text(workload.name.len()));
    entry
        + text(key.len())
        + text(size_of::<Pod>())
        + text(pod.name.len())
        + workload
        + labels
        + addresses * (holder + size_of::<IpAddr>())
}
