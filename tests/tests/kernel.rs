//! The agent on Debian's 6.1 kernel in a virtual machine: load, attach, observe, in both modes.
//!
//! Run by `cargo xtask test`, which names the agent and the scripted server.

use infertap_tests::kernel::{FAILURE, Programs, SUCCESS, boot, folder, image};
use std::{env, path::Path, time::Duration};

#[test]
fn a_6_1_kernel_loads_attaches_and_observes() {
    let path = |name: &str| env::var_os(name).expect("run the kernel test with `cargo xtask test`");
    let files = folder(Path::new(&path("INFERTAP_TEST_TARGET")));
    let programs = Programs {
        init: env!("CARGO_BIN_EXE_kernel-init").into(),
        agent: path("INFERTAP_BIN").into(),
        server: path("INFERTAP_SCRIPTED_SERVER").into(),
    };
    let kernel = image(&files).unwrap();
    let console = boot(&kernel, &programs, &files, Duration::from_mins(5)).unwrap();
    println!("{console}");
    assert!(!console.contains(FAILURE), "the machine reports a failure");
    assert!(console.contains(SUCCESS), "the machine reports no success");
    assert!(
        env::var_os("INFERTAP_KERNEL").is_some() || console.contains("kernel 6.1."),
        "another kernel ran"
    );
}
