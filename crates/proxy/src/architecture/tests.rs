use super::*;

/// Effects of the arm64 instructions in stubs.
struct Registers {
    values: [u64; 32],
    jumped_to: Option<u64>,
}

/// Runs an arm64 stub at an address, with memory read by a function.
fn run(code: &[u8], at: u64, memory: impl Fn(u64) -> u64) -> Registers {
    let mut registers = Registers { values: [0; 32], jumped_to: None };
    for (index, word) in code.chunks(4).enumerate() {
        let word = u32::from_le_bytes(word.try_into().unwrap());
        let here = at + index as u64 * 4;
        let (to, from) = ((word & 31) as usize, (word >> 5 & 31) as usize);
        if word == BTI_C {
            assert_eq!(index, 0, "a jump lands on it");
        } else if word >> 31 == 1 && word >> 24 & 0x1f == 0x10 {
            let pages = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
            // A signed number of 21 bits.
            let pages = i64::from((pages << 11).cast_signed() >> 11);
            registers.values[to] = (here & !0xfff).wrapping_add_signed(pages << 12);
        } else if word >> 22 == 0x244 {
            registers.values[to] = registers.values[from] + u64::from(word >> 10 & 0xfff);
        } else if word >> 22 == 0x3e5 {
            registers.values[to] =
                memory(registers.values[from] + u64::from(word >> 10 & 0xfff) * 8);
        } else if word & !(31 << 5) == 0xd61f_0000 {
            registers.jumped_to = Some(registers.values[from]);
            return registers;
        } else {
            panic!("{word:#010x} is no instruction of a stub");
        }
    }
    registers
}

#[test]
fn a_stub_on_x86_64_jumps_through_its_slot() {
    let stub = Architecture::X86_64.hook_stub(0x1010, 0x2148);
    // endbr64; jmp *0x112e(%rip); the rest traps.
    let expected = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x2e, 0x11, 0, 0];
    assert_eq!(stub[..10], expected);
    assert!(stub[10..].iter().all(|byte| *byte == 0xcc));
}

#[test]
fn a_stub_on_x86_64_names_its_record_in_r11() {
    let stub = Architecture::X86_64.unknown_stub(0x1020, 0x3000, 0x2150);
    // endbr64; lea 0x1fd5(%rip), %r11; jmp *0x111f(%rip)
    let expected =
        [0xf3, 0x0f, 0x1e, 0xfa, 0x4c, 0x8d, 0x1d, 0xd5, 0x1f, 0, 0, 0xff, 0x25, 0x1f, 0x11, 0, 0];
    assert_eq!(stub[..17], expected);
}

#[test]
fn stubs_on_arm64_are_these_instructions() {
    let words = |code: &[u8]| -> Vec<u32> {
        code.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let hook = Architecture::Aarch64.hook_stub(0x1_0010, 0x2_0148);
    // bti c; adrp x16, 0x20000; ldr x17, [x16, #0x148]; br x17
    assert_eq!(words(&hook), [0xd503_245f, 0x9000_0090, 0xf940_a611, 0xd61f_0220]);
    let unknown = Architecture::Aarch64.unknown_stub(0x1_0020, 0x3_0018, 0x2_0150);
    // bti c; adrp x16, 0x30000; add x16, x16, #0x18; adrp x17, 0x20000; ldr x17, [x17, #0x150]; br x17
    let expected =
        [0xd503_245f, 0x9000_0110, 0x9100_6210, 0x9000_0091, 0xf940_aa31, 0xd61f_0220, 0, 0];
    assert_eq!(words(&unknown), expected);
}

#[test]
fn an_arm64_stub_reaches_any_slot_and_record() {
    for (at, record, slot) in [
        (0x1_0000, 0x3_0000, 0x2_0140),
        (0x1_0ff0, 0x3_0ff8, 0x2_0ff8),
        (0x1_0020, 0x1_0fe8, 0x1_0ff0),
        (0x7fff_f000, 0x1000, 0x2008),
        (0x1000, 0x7fff_f008, 0x3456_7898),
    ] {
        let (from, to) = (slot as u64, record as u64);
        let stub = Architecture::Aarch64.unknown_stub(at, record, slot);
        let registers = run(&stub, at as u64, |place| place ^ 0xabcd);
        assert_eq!(registers.values[16], to, "x16 of a stub at {at:#x}");
        assert_eq!(registers.jumped_to, Some(from ^ 0xabcd), "a stub at {at:#x}");
        let stub = Architecture::Aarch64.hook_stub(at, slot);
        let registers = run(&stub, at as u64, |place| place ^ 0xabcd);
        assert_eq!(registers.jumped_to, Some(from ^ 0xabcd), "a stub at {at:#x}");
    }
}

#[test]
fn the_trap_traps() {
    assert_eq!(Architecture::X86_64.trap()[..3], [0x0f, 0x0b, 0xcc]);
    assert_eq!(Architecture::Aarch64.trap(), [0; TRAP_BYTES]);
}
