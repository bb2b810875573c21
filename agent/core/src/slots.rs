//! What calls within a server have told of requests that it has under way, until their exchanges end: the join of
//! threads, tasks and slots.
//!
//! Owns: the bounded tables of threads, requests, tasks and slots, and what is believed of a request that has ended.
//! Refuses: what a call means (`engine::llama_cpp`), what is in a step (`slots::step`), and records (`exchange`).
//!
//! A request is read, tokenized and made a task in one thread. The server's loop gives a task a slot, and tells then by
//! the slot alone. So a request is found by the thread that read its connection, and its times by its task's slot: no
//! number here is guessed.

mod request;
mod step;
#[cfg(test)]
mod tests;

use crate::{
    Nanos, Observation,
    engine::llama_cpp::LlamaCall,
    event::{Call, ConnId},
    inside::Told,
    observation::{EngineLoad, EngineReport},
    timeline::Gaps,
};
use request::{Request, Task, task_of};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};
use step::Steps;

/// Processes with such calls.
const MAX_SERVERS: usize = 1024;
/// Threads that read connections; more than a server's pool has.
const MAX_THREADS: usize = 4096;
/// Requests under way in one process; past it the oldest is forgotten, and keeps to what its socket tells.
const MAX_REQUESTS: usize = 8192;
/// Tasks of one request: prompts times choices.
const MAX_TASKS: usize = 256;
/// Gaps between tokens that are kept of one request.
const MAX_GAPS: usize = 16_384;
/// Slots of one process.
const MAX_SLOTS: usize = 4096;

/// All processes.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    servers: HashMap<u32, Server>,
    evicted: u64,
}

#[derive(Debug)]
struct Server {
    engine: Arc<str>,
    model: Option<Arc<str>>,
    threads: HashMap<u32, Thread>,
    requests: HashMap<ConnId, Request>,
    /// Requests, oldest first; some may be gone.
    order: VecDeque<(ConnId, Nanos)>,
    tasks: HashMap<u32, ConnId>,
    /// By the address of the slot. Ordered, so that the same events give the same observations.
    slots: BTreeMap<u64, Slot>,
    steps: Steps,
    load_told: Option<(u64, u64)>,
}

/// A thread that read from a connection.
#[derive(Debug, Clone, Copy)]
struct Thread {
    conn: ConnId,
    /// What was tokenized last since.
    tokens: Option<u64>,
    /// A task was made of it.
    made: bool,
}

/// A slot that is in use.
#[derive(Debug, Default)]
struct Slot {
    /// `None`: what it works on was taken up before the agent came.
    task: Option<(ConnId, u32)>,
    launched: Nanos,
    scheduled: Option<Nanos>,
    tokens: u64,
    prompt: step::Prompt,
}

impl Slots {
    /// A thread of a process read from a connection that it serves.
    pub(crate) fn read(&mut self, tgid: u32, tid: u32, conn: ConnId, engine: &Arc<str>) {
        let Some(server) = self.server(tgid, engine) else {
            return;
        };
        if server.threads.len() >= MAX_THREADS && !server.threads.contains_key(&tid) {
            server.threads.clear();
            self.evicted += 1;
            return;
        }
        let thread = Thread {
            conn,
            tokens: None,
            made: false,
        };
        server.threads.insert(tid, thread);
    }

    /// A function was called.
    pub(crate) fn call(
        &mut self,
        call: &Call<'_>,
        engine: &Arc<str>,
        model: Option<&Arc<str>>,
        out: &mut Vec<Observation>,
    ) {
        let Some(understood) = LlamaCall::of(call) else {
            return;
        };
        let Some(server) = self.server(call.tgid, engine) else {
            return;
        };
        if server.model.as_ref() != model {
            server.model = model.cloned();
        }
        let evicted = server.call(understood, call, out);
        self.evicted += evicted;
        self.tell_load(call.tgid, out);
    }

    /// The exchange on this connection, begun at `since`, has ended. What is believed of it, and forgotten here.
    pub(crate) fn take(
        &mut self,
        tgid: u32,
        conn: ConnId,
        since: Option<Nanos>,
        out: &mut Vec<Observation>,
    ) -> Option<Told> {
        let request = self.servers.get_mut(&tgid)?.forget(conn)?;
        self.tell_load(tgid, out);
        // Of an exchange that was not seen from its beginning, it is not known whose tasks they are.
        (request.made >= since?).then(|| request.told())
    }

    /// Time has passed: tells the last step, which no other followed.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        for server in self.servers.values_mut() {
            server.steps.expire(now, out);
        }
    }

    /// A process is gone, and all that it was doing.
    pub(crate) fn exit(&mut self, tgid: u32) {
        self.servers.remove(&tgid);
    }

    /// How much was given up to stay within bounds since this was last asked.
    pub(crate) fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let of = |server: &Server| {
            let gaps = server.requests.values().map(|request| request.gaps.heap_bytes());
            gaps.sum::<usize>()
                + server.threads.len() * (size_of::<Thread>() + 16)
                + server.requests.len() * (size_of::<Request>() + size_of::<Task>() + 96)
                + server.order.len() * 16
                + server.slots.len() * (size_of::<Slot>() + 32)
        };
        self.servers.values().map(of).sum()
    }

    fn server(&mut self, tgid: u32, engine: &Arc<str>) -> Option<&mut Server> {
        if self.servers.len() >= MAX_SERVERS && !self.servers.contains_key(&tgid) {
            return None;
        }
        let server = self.servers.entry(tgid).or_insert_with(|| Server {
            engine: Arc::clone(engine),
            model: None,
            threads: HashMap::new(),
            requests: HashMap::new(),
            order: VecDeque::new(),
            tasks: HashMap::new(),
            slots: BTreeMap::new(),
            steps: Steps::default(),
            load_told: None,
        });
        if server.engine != *engine {
            server.engine = Arc::clone(engine);
        }
        Some(server)
    }

    /// How many requests have a slot and how many wait for one, when that has changed.
    fn tell_load(&mut self, tgid: u32, out: &mut Vec<Observation>) {
        let Some(server) = self.servers.get_mut(&tgid) else {
            return;
        };
        if !server.steps.has_slots() {
            return;
        }
        let waiting = server.waiting();
        let load = (server.slots.len() as u64, waiting);
        if server.load_told.replace(load) == Some(load) {
            return;
        }
        let (engine, model) = (Arc::clone(&server.engine), server.model.clone());
        let of_engine = self.servers.values().filter(|server| server.engine == engine);
        let (running, waiting) = of_engine
            .filter_map(|server| server.load_told)
            .fold((0, 0), |sum, load| (sum.0 + load.0, sum.1 + load.1));
        out.push(Observation::Engine(Box::new(EngineReport {
            engine,
            model,
            load: Some(EngineLoad {
                running,
                waiting,
                kv_cache_usage: None,
            }),
            prefix_queried_tokens: 0,
            prefix_hit_tokens: 0,
            preemptions: 0,
        })));
    }
}

impl Server {
    /// Takes a call; answers how much was given up for it.
    fn call(&mut self, understood: LlamaCall, call: &Call<'_>, out: &mut Vec<Observation>) -> u64 {
        match understood {
            LlamaCall::Tokenized(tokens) => {
                if let Some(thread) = self.threads.get_mut(&call.tid)
                    && !thread.made
                {
                    thread.tokens = Some(tokens);
                }
                0
            }
            LlamaCall::TaskMade(task) => self.task_made(task, call),
            LlamaCall::Launched { slot, task } => {
                self.launched(slot, task, call);
                0
            }
            LlamaCall::Preparing => {
                self.steps.has_slots_now();
                self.schedule(call.begin);
                self.steps.finish(out);
                0
            }
            LlamaCall::Step(batch) => {
                self.schedule(call.begin);
                let names = (&self.engine, self.model.as_ref());
                self.steps
                    .step(names, (call.begin, call.end), batch, &mut self.slots, out);
                0
            }
            LlamaCall::Token { slot } => self.token(slot, call.end),
            LlamaCall::Released { slot } => {
                self.slots.remove(&slot);
                0
            }
        }
    }

    /// A thread that has read a request makes a task of it.
    fn task_made(&mut self, id: u32, call: &Call<'_>) -> u64 {
        let Some(thread) = self.threads.get_mut(&call.tid) else {
            return 0;
        };
        let conn = thread.conn;
        let mut evicted = 0;
        if !std::mem::replace(&mut thread.made, true) {
            let prompt_tokens = thread.tokens;
            self.forget(conn);
            while self.requests.len() >= MAX_REQUESTS
                && let Some((oldest, made)) = self.order.pop_front()
            {
                if self
                    .requests
                    .get(&oldest)
                    .is_some_and(|request| request.made == made)
                {
                    self.forget(oldest);
                    evicted += 1;
                }
            }
            // Ended ones stay in the order until they come to its front, or are too many.
            if self.order.len() >= 2 * MAX_REQUESTS {
                let requests = &self.requests;
                self.order
                    .retain(|(conn, made)| requests.get(conn).is_some_and(|r| r.made == *made));
            }
            self.order.push_back((conn, call.end));
            let request = Request {
                made: call.end,
                prompt_tokens,
                tasks: Vec::new(),
                gaps: Gaps::default(),
                lossy: false,
            };
            self.requests.insert(conn, request);
        }
        let Some(request) = self.requests.get_mut(&conn) else {
            return evicted;
        };
        if request.tasks.len() >= MAX_TASKS {
            request.lossy = true;
            return evicted;
        }
        request.tasks.push(Task {
            id,
            launched: false,
            scheduled: None,
            first_token: None,
            last_token: None,
            tokens: 0,
            computed: None,
        });
        self.tasks.insert(id, conn);
        evicted
    }

    fn launched(&mut self, slot: u64, task: u32, call: &Call<'_>) {
        self.steps.has_slots_now();
        if self.slots.len() >= MAX_SLOTS && !self.slots.contains_key(&slot) {
            return;
        }
        let conn = self.tasks.get(&task).copied();
        if let Some(task) = conn.and_then(|conn| task_of(&mut self.requests, (conn, task))) {
            task.launched = true;
        }
        let taken_up = Slot {
            task: conn.map(|conn| (conn, task)),
            launched: call.end,
            ..Slot::default()
        };
        self.slots.insert(slot, taken_up);
    }

    /// The batch that is put together from `at` on is the first that may hold what slots took up before.
    fn schedule(&mut self, at: Nanos) {
        for slot in self.slots.values_mut() {
            if slot.scheduled.is_some() || slot.launched > at || slot.task.is_none() {
                continue;
            }
            slot.scheduled = Some(at);
            if let Some(task) = slot.task.and_then(|task| task_of(&mut self.requests, task)) {
                task.scheduled = task.scheduled.or(Some(at));
            }
        }
    }

    fn token(&mut self, address: u64, at: Nanos) -> u64 {
        self.steps.has_slots_now();
        let known = self.slots.contains_key(&address);
        if !known && self.slots.len() >= MAX_SLOTS {
            return 1;
        }
        self.steps.token(address, known);
        let slot = self.slots.entry(address).or_default();
        slot.tokens += 1;
        let Some(key) = slot.task else { return 0 };
        let prompt_tokens = self.requests.get(&key.0).and_then(Request::prompt_of_one);
        if slot.tokens == 1 {
            self.steps.prompt_read(slot, prompt_tokens);
        }
        let computed = self.steps.computed(slot);
        if let Some(request) = self.requests.get_mut(&key.0)
            && let Some(task) = request.tasks.iter_mut().find(|task| task.id == key.1)
        {
            if let Some(before) = task.last_token {
                request.gaps.push(at.saturating_sub(before), 1, MAX_GAPS);
            }
            task.first_token = task.first_token.or(Some(at));
            task.last_token = Some(at);
            task.tokens += 1;
            task.computed = computed;
        }
        0
    }

    fn waiting(&self) -> u64 {
        let waits = |request: &&Request| {
            request.prompt_tokens.is_some() && !request.tasks.iter().any(|task| task.launched)
        };
        self.requests.values().filter(waits).count() as u64
    }

    fn forget(&mut self, conn: ConnId) -> Option<Request> {
        let request = self.requests.remove(&conn)?;
        for task in &request.tasks {
            self.tasks.remove(&task.id);
        }
        Some(request)
    }
}
