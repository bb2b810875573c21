//! Contract of the committed BPF object: it was built from the sources as they are now. Needs no BPF toolchain;
//! `cargo xtask ebpf --check` compares the bytes.

use infertap_tests::bpf_stamp::{STAMP, Stamp};
use std::path::Path;

#[test]
fn the_committed_object_is_what_the_sources_built_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    Stamp::read(&root.join(STAMP)).unwrap().verify(root).unwrap();
}
