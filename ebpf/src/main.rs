//! BPF programs of infertap: sockets, processes and function calls of watched engines.
//!
//! Owns: which bytes reach the ring buffer. Refuses: their meaning (the core's) and which processes are watched (the
//! agent's: it writes `TARGETS`). No kernel structure is read, so there is no CO-RE and no kernel header; the helpers
//! and map types used exist since Linux 5.8.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod arrival;
mod call;
mod cuda;
mod descriptor;
mod emit;
mod engine;
mod maps;
mod payload;
mod process;
mod socket_tracepoint;
mod socket_uprobe;

/// Helpers marked GPL-only (`bpf_probe_read_user` and the tracing ones) ask for it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: no code here can panic; the verifier would refuse a program in which this loop is reachable.
    unsafe { core::hint::unreachable_unchecked() }
}
