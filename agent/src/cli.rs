//! Command line: subcommands and flags.
