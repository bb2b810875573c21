//! The counting thread: one job after the other, with the model of its engine.
//!
//! Owns: which models are loaded, and for how long a failure to load one is remembered. Refuses: more than a few models at
//! once; the one that was not used for longest goes.

use super::beneath::Identity;
use super::config::TokensConfig;
use super::files::{self, Found};
use super::model::Model;
use super::prompt::Refusal;
use crate::discover::Host;
use infertap_core::{CountJob, CountOutcome, Counted, EngineInfo, Source};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Models that are loaded at once; each takes some 20 to 150 MB.
const MAX_MODELS: usize = 4;
/// An engine whose tokenizer was not found is looked at again after this time: it may have loaded its files since.
const RETRY: Duration = Duration::from_mins(1);

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Work {
    Job(Box<CountJob>),
    /// There are news.
    Look,
}

/// What happened to an engine.
#[derive(Debug)]
pub(super) enum News {
    Up(Arc<EngineInfo>),
    Down(Arc<str>),
}

#[derive(Debug)]
struct Engine {
    info: Arc<EngineInfo>,
    /// The file of its model, or when it was last looked for in vain; `None`: not looked for yet.
    found: Option<Result<Identity, Instant>>,
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct Worker {
    host: Host,
    config: TokensConfig,
    news: Arc<Mutex<Vec<News>>>,
    engines: HashMap<Arc<str>, Engine>,
    /// The one used last comes last.
    models: Vec<(Identity, Arc<Model>)>,
    /// A model was given up since the thread began.
    dropped: bool,
}

/// Works until nobody sends work any more.
///
/// The library caches words by thread and model, and never forgets those of a model that is gone: so the work goes on in a
/// new thread when one was given up.
pub(super) fn run(mut worker: Worker, mut inbox: Receiver<Work>, outbox: &Sender<Counted>) {
    loop {
        worker.dropped = false;
        let sender = outbox.clone();
        let part = std::thread::Builder::new()
            .name("infertap-count".to_owned())
            .spawn(move || {
                let goes_on = worker.work(&inbox, &sender);
                (worker, inbox, goes_on)
            });
        match part.map(std::thread::JoinHandle::join) {
            Ok(Ok((back, rest, true))) => (worker, inbox) = (back, rest),
            Ok(Ok(_)) => return,
            Ok(Err(_)) | Err(_) => {
                tracing::error!("the counting thread ended; tokens are estimated from now on");
                return;
            }
        }
    }
}

impl Worker {
    pub(super) fn new(config: &TokensConfig, host: Host, news: Arc<Mutex<Vec<News>>>) -> Worker {
        Worker {
            host,
            config: config.clone(),
            news,
            engines: HashMap::new(),
            models: Vec::new(),
            dropped: false,
        }
    }

    /// Works; `true`: until a model was given up.
    fn work(&mut self, inbox: &Receiver<Work>, outbox: &Sender<Counted>) -> bool {
        while !self.dropped {
            let Ok(work) = inbox.recv() else { return false };
            self.look_for_news();
            if let Work::Job(job) = work {
                // A tokenizer's file is the engine's, and the library may not expect what is in it.
                let counted = catch_unwind(AssertUnwindSafe(|| self.count(&job)))
                    .unwrap_or_else(|_| Counted::estimated(&job, CountOutcome::Failed));
                if outbox.send(counted).is_err() {
                    return false;
                }
            }
        }
        true
    }

    fn look_for_news(&mut self) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *news);
        drop(news);
        for one in all {
            match one {
                News::Up(info) => {
                    let known = self.engines.get(&info.id);
                    if known.is_none_or(|known| known.info.pids != info.pids) {
                        let engine = Engine {
                            info: Arc::clone(&info),
                            found: None,
                        };
                        self.engines.insert(Arc::clone(&info.id), engine);
                    }
                }
                News::Down(id) => {
                    self.engines.remove(&id);
                    self.drop_unused();
                }
            }
        }
    }

    fn count(&mut self, job: &CountJob) -> Counted {
        let Some(model) = self.model(job) else {
            return Counted::estimated(job, CountOutcome::NoTokenizer);
        };
        let mut counted = Counted::estimated(job, CountOutcome::Counted);
        let mut failed = |refusal: &Refusal| {
            tracing::debug!("{}: not counted: {refusal}", job.engine);
            counted.outcome = match refusal {
                Refusal::Unsupported(_) => CountOutcome::Unsupported,
                Refusal::Failed(_) => CountOutcome::Failed,
            };
        };
        let input = job
            .input
            .then(|| model.input(job.content.protocol(), job.content.request()));
        let output = job.output.then(|| {
            let texts = job.content.texts();
            texts.map(|text| model.output(text)).sum::<Result<u64, _>>()
        });
        for refusal in [&input, &output]
            .into_iter()
            .flatten()
            .filter_map(|r| r.as_ref().err())
        {
            failed(refusal);
        }
        let exact = |count: Option<Result<u64, Refusal>>| Some((count?.ok()?, Source::Tokenizer));
        counted.input = exact(input).or(counted.input);
        counted.output = exact(output).or(counted.output);
        counted
    }

    fn model(&mut self, job: &CountJob) -> Option<Arc<Model>> {
        let engine = self.engines.get(&job.engine)?;
        let (found, info) = (engine.found, Arc::clone(&engine.info));
        let again = match found {
            Some(Ok(identity)) => match self.loaded(identity) {
                Some(model) => return Some(model),
                None => true,
            },
            Some(Err(at)) => at.elapsed() >= RETRY,
            None => true,
        };
        if !again {
            return None;
        }
        let known = |identity: Identity| self.models.iter().any(|(other, _)| *other == identity);
        let began = Instant::now();
        let found = match self.config.file_of(&job.model) {
            Some(path) => files::named(path, info.kind, &known),
            None => files::find(&self.host, &info, &known),
        };
        let found = match found {
            Ok(Ok(identity)) => Ok(identity),
            Ok(Err(Found {
                model: Ok(model),
                identity,
            })) => {
                tracing::info!(
                    "{}: its tokenizer is loaded ({:.1} s)",
                    info.id,
                    began.elapsed().as_secs_f64()
                );
                self.models.push((identity, Arc::new(model)));
                if self.models.len() > MAX_MODELS {
                    self.models.remove(0);
                    self.dropped = true;
                }
                Ok(identity)
            }
            Ok(Err(Found { model: Err(why), .. })) | Err(why) => {
                tracing::warn!("{}: its tokens can't be counted, only estimated: {why}", info.id);
                Err(Instant::now())
            }
        };
        if let Some(engine) = self.engines.get_mut(&job.engine) {
            engine.found = Some(found);
        }
        self.loaded(found.ok()?)
    }

    fn loaded(&mut self, identity: Identity) -> Option<Arc<Model>> {
        let at = self.models.iter().position(|(other, _)| *other == identity)?;
        let entry = self.models.remove(at);
        let model = Arc::clone(&entry.1);
        self.models.push(entry);
        Some(model)
    }

    /// Gives up models of engines that are gone.
    fn drop_unused(&mut self) {
        let before = self.models.len();
        let engines = &self.engines;
        self.models.retain(|(identity, _)| {
            let mut of_engines = engines.values().filter_map(|engine| engine.found);
            of_engines.any(|found| found == Ok(*identity))
        });
        self.dropped |= self.models.len() < before;
    }
}
