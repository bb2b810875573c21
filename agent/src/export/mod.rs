//! Exporters: one file each.
