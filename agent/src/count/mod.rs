//! Counting tokens with the model's own tokenizer, where neither the engine nor the response tells how many there are.
//!
//! Owns: the vocabularies and chat templates of the engines' models, the thread that counts with them, its bounded queue.
//! Refuses: deciding when a count is wanted and what becomes of it (the core). What can't be counted is estimated, and the
//! answer says why. `docs/tokens.md` tells how exact each is.

mod beneath;
mod command;
mod config;
mod context;
mod files;
mod model;
mod pre;
mod prompt;
mod python;
mod spm;
mod template;
#[cfg(test)]
mod tests;
mod vocabulary;
mod worker;

pub use command::tokens_command;
pub use config::TokensConfig;
pub use context::context_limit;

use crate::discover::Host;
use infertap_core::{CountJob, CountOutcome, Counted, EngineInfo};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use worker::{News, Work, Worker};

/// The counting thread, from outside. It ends when this is dropped.
#[derive(Debug)]
pub struct Counter {
    /// `None` only while it is dropped.
    work: Option<SyncSender<Work>>,
    news: Arc<Mutex<Vec<News>>>,
    answers: Receiver<Counted>,
    thread: Option<JoinHandle<()>>,
}

impl Counter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has none to give.
    pub fn start(config: &TokensConfig, host: Host) -> std::io::Result<Counter> {
        let (work, inbox) = sync_channel(config.queue);
        // As many answers as work can be under way, and one for each that was refused meanwhile.
        let (outbox, answers) = std::sync::mpsc::channel();
        let news = Arc::default();
        let worker = Worker::new(config, host, Arc::clone(&news));
        let thread = std::thread::Builder::new()
            .name("infertap-count".to_owned())
            .spawn(move || worker::run(worker, inbox, &outbox))?;
        Ok(Counter {
            work: Some(work),
            news,
            answers,
            thread: Some(thread),
        })
    }

    /// Gives a job to the thread; answers it at once, with an estimate, when too many wait already.
    pub fn submit(&self, job: &CountJob) -> Option<Counted> {
        let sent = self.work.as_ref()?.try_send(Work::Job(Box::new(job.clone())));
        sent.err()
            .map(|_| Counted::estimated(job, CountOutcome::QueueFull))
    }

    /// An engine is here, or more is known of it.
    pub fn engine_up(&self, engine: &Arc<EngineInfo>) {
        self.tell(News::Up(Arc::clone(engine)));
    }

    /// An engine is gone.
    pub fn engine_down(&self, id: &Arc<str>) {
        self.tell(News::Down(Arc::clone(id)));
    }

    /// The next answer, if there is one.
    pub fn answer(&self) -> Option<Counted> {
        self.answers.try_recv().ok()
    }

    /// News of engines are few and must not be lost, and nobody waits here: they do not go through the queue.
    fn tell(&self, news: News) {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(news);
        drop(all);
        if let Some(sender) = &self.work {
            // When there is no room the thread is awake, and looks for news before its next job.
            let _ = sender.try_send(Work::Look);
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Counts the prompt tokens of requests to a running engine, from its own files: what the agent's counting thread does.
#[derive(Debug)]
pub struct PromptCounter(model::Model);

impl PromptCounter {
    /// That of the engine of a process.
    ///
    /// # Errors
    /// Why its tokenizer can't be used.
    pub fn of_engine(host: &Host, engine: &EngineInfo) -> Result<PromptCounter, String> {
        match files::find(host, engine, &|_| false)? {
            Err(found) => found.model.map(PromptCounter),
            Ok(_) => Err("nothing is loaded yet".to_owned()),
        }
    }

    /// Prompt tokens of a request with this body.
    ///
    /// # Errors
    /// Why they can't be counted.
    pub fn prompt(&self, protocol: &str, body: &[u8]) -> Result<u64, String> {
        self.0
            .input(protocol, body)
            .map_err(|refusal| refusal.to_string())
    }

    /// Tokens of a generated text.
    ///
    /// # Errors
    /// Why they can't be counted.
    pub fn text(&self, text: &str) -> Result<u64, String> {
        self.0.output(text).map_err(|refusal| refusal.to_string())
    }
}
