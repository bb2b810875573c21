//! `infertap trace`: its flags.
//!
//! Owns: their names and help texts. Refuses: doing anything.

use crate::config::Span;
use clap::{Args, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `infertap trace`.
#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    /// File to write; - is standard output. One that is there is replaced as a whole.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// What ended within this time; 1h at most, and no more than the agent remembers.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub since: Span,
    /// This engine and its GPUs alone, as `infertap engines` names it.
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<String>,
    /// Address and port of the agent [default: server.listen of the configuration].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub agent: Option<SocketAddr>,
    /// Configuration file [default: /etc/infertap/infertap.toml where it exists].
    #[arg(long, value_name = "FILE", env = "INFERTAP_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}
