//! Where a uprobe on a function's entry costs least: on its first instruction, or shortly after it.
//!
//! Owns: the choice, for x86-64. A probed instruction that the kernel cannot emulate is run alone, out of its place, with a
//! second trap after it, which in a virtual machine costs tens of times what the first does. It emulates pushes, jumps and
//! calls (since Linux 4.16). Every exported function of the CUDA driver begins with a comparison and a jump; what is built
//! for Intel's CET begins with `endbr64`; both are passed over. Refuses: passing over what changes an argument, the stack
//! or memory, so that a probe sees what it would see at the first instruction; and a place that the function may come to
//! again, where a call would count twice.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
};

/// Bytes that may be passed over.
const REACH: usize = 32;

/// Registers that arguments come in, and the stack pointer.
const KEPT: [Register; 7] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
    Register::RSP,
];

/// How many bytes after the first of the function whose `code` this is, all of it.
pub(super) fn least_cost(code: &[u8]) -> usize {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut facts = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    while decoder.can_decode() && decoder.position() <= REACH {
        let at = decoder.position();
        if code.get(at..).is_some_and(is_emulated) {
            return if comes_back(code, at) { 0 } else { at };
        }
        decoder.decode_out(&mut instruction);
        if !keeps_arguments(&instruction, &mut facts) {
            return 0;
        }
    }
    0
}

/// The kernel emulates the instruction that begins here.
fn is_emulated(code: &[u8]) -> bool {
    match code {
        // push, of the old registers and of the new ones; conditional jumps; nop; call and jump by a distance
        [0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb, ..]
        | [0x41, 0x50..=0x57, ..]
        | [0x0f, 0x80..=0x8f, ..] => true,
        _ => false,
    }
}

fn keeps_arguments(instruction: &Instruction, facts: &mut InstructionInfoFactory) -> bool {
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let info = facts.info(instruction);
    !instruction.is_invalid()
        && instruction.flow_control() == FlowControl::Next
        && !info.used_memory().iter().any(|memory| writes(memory.access()))
        && !info
            .used_registers()
            .iter()
            .any(|used| writes(used.access()) && KEPT.contains(&used.register().full_register()))
}

/// Something in the function jumps to what lies after its first byte and not after `at`, or may.
fn comes_back(code: &[u8], at: usize) -> bool {
    if at == 0 {
        return false;
    }
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let passed = 1..=at as u64;
    decoder.iter().any(|instruction| {
        let jumps = instruction.op_count() > 0
            && matches!(
                instruction.op0_kind(),
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
            );
        instruction.is_invalid() || jumps && passed.contains(&instruction.near_branch_target())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_emulated_is_passed_over_where_a_probe_sees_the_same_after_it() {
        #[rustfmt::skip]
        let cases: &[(&str, &[u8], usize)] = &[
            ("push rbp", &[0x55, 0x48, 0x89, 0xe5, 0xc3], 0),
            ("push r15", &[0x41, 0x57, 0xc3], 0),
            ("endbr64; push rbp", &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3], 4),
            ("the CUDA driver: cmp dword ptr [rip + …], …; je; jmp [rip + …]; mov eax, 4; ret",
             &[0x81, 0x3d, 0x3e, 0x93, 0x8d, 0x01, 0x00, 0xba, 0x1c, 0x32, 0x74, 0x0c, 0xff, 0x25, 0xc6, 0x18, 0x7e, 0x01,
               0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0xb8, 0x04, 0x00, 0x00, 0x00, 0xc3], 10),
            ("glibc: mov eax, fs:[0x18]; test eax, eax; jne; ret",
             &[0x64, 0x8b, 0x04, 0x25, 0x18, 0x00, 0x00, 0x00, 0x85, 0xc0, 0x75, 0x01, 0xc3, 0xc3], 10),
            ("xor eax, eax; call", &[0x31, 0xc0, 0xe8, 0x00, 0x00, 0x00, 0x00, 0xc3], 2),
            ("the stack changes: sub rsp, 8; push rbp", &[0x48, 0x83, 0xec, 0x08, 0x55, 0xc3], 0),
            ("an argument changes: mov edi, 1; push rbp", &[0xbf, 0x01, 0x00, 0x00, 0x00, 0x55, 0xc3], 0),
            ("a part of one does: mov cl, 1; push rbp", &[0xb1, 0x01, 0x55, 0xc3], 0),
            ("one may: cmovne rdi, rsi; push rbp", &[0x48, 0x0f, 0x45, 0xfe, 0x55, 0xc3], 0),
            ("memory changes: mov [rdi], eax; push rbp", &[0x89, 0x07, 0x55, 0xc3], 0),
            ("it returns: ret; push rbp", &[0xc3, 0x55], 0),
            ("a jump by a pointer: jmp [rip + …]; push rbp", &[0xff, 0x25, 0, 0, 0, 0, 0x55], 0),
            ("a loop to the place: endbr64; nop; jmp to the nop", &[0xf3, 0x0f, 0x1e, 0xfa, 0x90, 0xeb, 0xfd], 0),
            ("a loop to behind it: endbr64; nop; nop; jmp to the second", &[0xf3, 0x0f, 0x1e, 0xfa, 0x90, 0x90, 0xeb, 0xfd], 4),
            ("no code after it: endbr64; push rbp; (bad)", &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x06], 0),
            ("cut short", &[0x81, 0x3d, 0x3e], 0),
            ("nothing", &[], 0),
        ];
        for (what, code, expected) in cases {
            assert_eq!(least_cost(code), *expected, "{what}");
        }
        let far = [&[0x31, 0xc0].repeat(17)[..], &[0x55, 0xc3]].concat();
        assert_eq!(least_cost(&far), 0, "too far");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_place_within_them_that_is_emulated_or_the_first(code in prop::collection::vec(any::<u8>(), 0..80)) {
            let place = least_cost(&code);
            prop_assert!(place <= REACH);
            prop_assert!(place == 0 || is_emulated(&code[place..]));
        }
    }
}
