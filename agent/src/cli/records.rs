//! Flags of the commands that show records of requests.
//!
//! Owns: their names and help texts. Refuses: doing anything.

use crate::config::Span;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `infertap requests`.
#[derive(Debug, Clone, Default, Args)]
pub struct RequestsArgs {
    /// Only slow ones; with --errors, either.
    #[arg(long)]
    pub slow: bool,
    /// Only those that failed, were refused or timed out; with --slow, either.
    #[arg(long)]
    pub errors: bool,
    /// Only those of this model.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only those of this scene.
    #[arg(long, value_name = "SCENE")]
    pub scene: Option<String>,
    /// Only those that ended within this time, as in 10m or 2d.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Span>,
    /// The newest so many.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Configuration file [default: /etc/infertap/infertap.toml where it exists].
    #[arg(long, value_name = "FILE", env = "INFERTAP_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

/// `infertap show`.
#[derive(Debug, Clone, Default, Args)]
pub struct ShowArgs {
    /// The request: its id or the first digits of it, its trace id, or its response's id.
    pub id: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Configuration file [default: /etc/infertap/infertap.toml where it exists].
    #[arg(long, value_name = "FILE", env = "INFERTAP_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}
