//! What works on this host, what does not, and what to do about it.

/// `infertap doctor`; whether `infertap run` can work.
///
/// # Errors
/// The output can't be written.
pub fn doctor_command(
    _config: &crate::config::Config,
    _json: bool,
    _out: &mut dyn std::io::Write,
) -> anyhow::Result<bool> {
    anyhow::bail!("`doctor` is not built into this version")
}
