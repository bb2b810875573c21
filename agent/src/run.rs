//! `infertap run`: wiring of discovery, probes, core and exporters.
