use std::sync::atomic::AtomicBool;
use std::thread;

use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms {
    generation: 7,
    gpu: *b"sixteen bytes...",
    memory_bytes: 20 << 30,
    context_bytes: 512 << 20,
    compute_milli_percent: 12_500,
    flags: STRICT,
};

/// The type as a guard maps it: each word read from its offset.
fn mapped(file: &[u8; SIZE]) -> Limits {
    let word = |offset| AtomicU64::new(u64_at(file, offset));
    let half = |offset| AtomicU32::new(u32_at(file, offset));
    let live = offset_of!(Limits, live);
    Limits {
        magic: word(offset_of!(Limits, magic)),
        version: half(offset_of!(Limits, version)),
        sequence: half(offset_of!(Limits, sequence)),
        generation: word(offset_of!(Limits, generation)),
        gpu: [word(offset_of!(Limits, gpu)), word(offset_of!(Limits, gpu) + 8)],
        memory_bytes: word(offset_of!(Limits, memory_bytes)),
        context_bytes: word(offset_of!(Limits, context_bytes)),
        compute_milli_percent: half(offset_of!(Limits, compute_milli_percent)),
        flags: half(offset_of!(Limits, flags)),
        _reserved: Default::default(),
        live: Live {
            gate: half(live + offset_of!(Live, gate)),
            epoch: half(live + offset_of!(Live, epoch)),
            untracked_bytes: word(live + offset_of!(Live, untracked_bytes)),
            driver_bytes: word(live + offset_of!(Live, driver_bytes)),
            withheld_bytes: word(live + offset_of!(Live, withheld_bytes)),
            utilisation: half(live + offset_of!(Live, utilisation)),
        },
    }
}

fn write(file: &mut [u8; SIZE], offset: usize, bytes: &[u8]) {
    file[offset..][..bytes.len()].copy_from_slice(bytes);
}

/// Changes a mapped file like the agent: one writer, in the order that [`Limits::terms`] relies on.
fn rewrite(limits: &Limits, terms: &Terms) {
    begin(limits);
    put_terms(limits, terms);
    finish(limits);
}

fn begin(limits: &Limits) {
    limits.sequence.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::Release);
}

fn finish(limits: &Limits) {
    limits.sequence.fetch_add(1, Ordering::Release);
}

fn put_terms(limits: &Limits, terms: &Terms) {
    put_first_terms(limits, terms);
    put_last_terms(limits, terms);
}

fn put_first_terms(limits: &Limits, terms: &Terms) {
    limits.generation.store(terms.generation, Ordering::Relaxed);
    limits.gpu[0].store(u64_at(&terms.gpu, 0), Ordering::Relaxed);
    limits.gpu[1].store(u64_at(&terms.gpu, 8), Ordering::Relaxed);
}

fn put_last_terms(limits: &Limits, terms: &Terms) {
    limits.memory_bytes.store(terms.memory_bytes, Ordering::Relaxed);
    limits.context_bytes.store(terms.context_bytes, Ordering::Relaxed);
    limits.compute_milli_percent.store(terms.compute_milli_percent, Ordering::Relaxed);
    limits.flags.store(terms.flags, Ordering::Relaxed);
}

/// Terms derived from one number.
fn terms_of(number: u64) -> Terms {
    let half = u32::try_from(number).expect("a small number");
    let mut gpu = [0; 16];
    gpu[..8].copy_from_slice(&number.to_ne_bytes());
    gpu[8..].copy_from_slice(&(!number).to_ne_bytes());
    Terms {
        generation: number,
        gpu,
        memory_bytes: number << 20,
        context_bytes: number * 3,
        compute_milli_percent: half,
        flags: !half,
    }
}

#[test]
fn a_new_file_says_its_terms_to_a_guard_and_to_an_agent() {
    let file = TERMS.file();
    assert_eq!(mapped(&file).terms(), Ok(TERMS));
    assert_eq!(mapped(&file).memory_bytes(), TERMS.memory_bytes);
    assert_eq!(Terms::decode(&file), Ok(TERMS));
}

#[test]
fn a_new_share_is_open_and_nothing_of_it_is_untracked() {
    let limits = mapped(&TERMS.file());
    assert_eq!(ShareGate::of(limits.live().gate.load(Ordering::Relaxed)), ShareGate::Open);
    assert_eq!(limits.live().untracked_bytes.load(Ordering::Relaxed), 0);
    assert_eq!(limits.live().driver_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn what_the_agent_writes_at_the_named_offsets_is_what_a_guard_reads() {
    let mut file = TERMS.file();
    let mut gate = [0; 8];
    gate[..4].copy_from_slice(&(ShareGate::Fenced as u32).to_ne_bytes());
    gate[4..].copy_from_slice(&9_u32.to_ne_bytes());
    write(&mut file, GATE_OFFSET, &gate);
    write(&mut file, UNTRACKED_OFFSET, &11_u64.to_ne_bytes());
    write(&mut file, UNTRACKED_OFFSET + 8, &13_u64.to_ne_bytes());
    write(&mut file, TERMS_OFFSET, &terms_of(5).encode());
    write(&mut file, SEQUENCE_OFFSET, &2_u32.to_ne_bytes());

    let limits = mapped(&file);
    assert_eq!(ShareGate::of(limits.live().gate.load(Ordering::Relaxed)), ShareGate::Fenced);
    assert_eq!(limits.live().epoch.load(Ordering::Relaxed), 9);
    assert_eq!(limits.live().untracked_bytes.load(Ordering::Relaxed), 11);
    assert_eq!(limits.live().driver_bytes.load(Ordering::Relaxed), 13);
    assert_eq!(limits.terms(), Ok(terms_of(5)));
    assert_eq!(Terms::decode(&file), Ok(terms_of(5)));
}

#[test]
fn words_that_are_written_alone_share_no_line_with_the_terms() {
    let sequence_ends = SEQUENCE_OFFSET + 4;
    let terms_end = TERMS_OFFSET + TERMS_SIZE;
    assert_eq!(GATE_OFFSET % 64, 0);
    assert!(sequence_ends <= TERMS_OFFSET && terms_end <= GATE_OFFSET);
}

#[test]
fn an_unknown_gate_pauses() {
    assert_eq!(ShareGate::of(0), ShareGate::Open);
    assert_eq!(ShareGate::of(1), ShareGate::Paused);
    assert_eq!(ShareGate::of(2), ShareGate::Fenced);
    for word in [3, 4, 0x100, u32::MAX] {
        assert_eq!(ShareGate::of(word), ShareGate::Paused, "{word}");
    }
}

#[test]
fn a_file_of_another_size_is_damaged() {
    let file = TERMS.file();
    let mut longer = file.to_vec();
    longer.push(0);
    for bytes in [&file[..0], &file[..8], &file[..SIZE - 1], &longer] {
        assert_eq!(Terms::decode(bytes), Err(Damage::Size), "{} bytes", bytes.len());
    }
}

#[test]
fn a_file_of_other_magic_or_version_is_damaged_for_both_readers() {
    let mut file = TERMS.file();
    write(&mut file, 0, b"OCTSTA\0\0");
    assert_eq!(Terms::decode(&file), Err(Damage::Magic));
    assert_eq!(mapped(&file).terms(), Err(Damage::Magic));

    let mut file = TERMS.file();
    write(&mut file, offset_of!(Limits, version), &(VERSION + 1).to_ne_bytes());
    assert_eq!(Terms::decode(&file), Err(Damage::Version(VERSION + 1)));
    assert_eq!(mapped(&file).terms(), Err(Damage::Version(VERSION + 1)));

    assert_eq!(Terms::decode(&[0; SIZE]), Err(Damage::Magic));
    assert_eq!(mapped(&[0; SIZE]).terms(), Err(Damage::Magic));
}

#[test]
fn a_half_written_file_is_unfinished_until_rewritten() {
    let limits = mapped(&TERMS.file());
    begin(&limits);
    put_first_terms(&limits, &terms_of(8));
    assert_eq!(limits.terms(), Err(Damage::Unfinished));
    put_last_terms(&limits, &terms_of(8));
    assert_eq!(limits.terms(), Err(Damage::Unfinished));
    finish(&limits);
    assert_eq!(limits.terms(), Ok(terms_of(8)));

    let mut file = TERMS.file();
    write(&mut file, SEQUENCE_OFFSET, &1_u32.to_ne_bytes());
    assert_eq!(Terms::decode(&file), Err(Damage::Unfinished));
    assert_eq!(mapped(&file).terms(), Err(Damage::Unfinished));
}

#[test]
fn the_sequence_may_wrap() {
    let limits = mapped(&TERMS.file());
    limits.sequence.store(u32::MAX - 1, Ordering::Relaxed);
    for number in 1..4 {
        rewrite(&limits, &terms_of(number));
        assert_eq!(limits.terms(), Ok(terms_of(number)));
    }
    assert_eq!(limits.sequence.load(Ordering::Relaxed), 4);
}

/// Reads while another thread writes. Returns the number of torn reads. If one is expected, both go
/// on until there is one.
fn torn(read: impl Fn(&Limits) -> Option<Terms>, is_awaited: bool) -> u64 {
    const WRITINGS: u64 = 40_000;
    let limits = mapped(&terms_of(0).file());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writing = 0;
            while !is_over.load(Ordering::Relaxed) {
                writing += 1;
                rewrite(&limits, &terms_of(writing % WRITINGS));
                if writing == WRITINGS && !is_awaited {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
        });
        let mut torn = 0;
        while !is_over.load(Ordering::Relaxed) {
            if read(&limits).is_some_and(|terms| terms != terms_of(terms.generation)) {
                torn += 1;
                is_over.store(is_awaited, Ordering::Relaxed);
            }
        }
        torn
    })
}

#[test]
fn a_guard_never_reads_half_of_one_writing_and_half_of_another() {
    assert_eq!(torn(|limits| limits.terms().ok(), false), 0);
}

#[test]
fn torn_reads_of_a_reader_with_one_sequence_check_are_found() {
    let careless = |limits: &Limits| {
        let memory_bytes = limits.memory_bytes();
        thread::yield_now();
        Some(Terms { memory_bytes, ..limits.terms().ok()? })
    };
    assert!(torn(careless, true) > 0);
}

fn any_terms() -> impl Strategy<Value = Terms> {
    (any::<(u64, [u8; 16], u64, u64)>(), any::<(u32, u32)>()).prop_map(|(long, short)| Terms {
        generation: long.0,
        gpu: long.1,
        memory_bytes: long.2,
        context_bytes: long.3,
        compute_milli_percent: short.0,
        flags: short.1,
    })
}

proptest! {
    #[test]
    fn any_terms_come_back(terms in any_terms()) {
        let file = terms.file();
        prop_assert_eq!(Terms::decode(&file), Ok(terms));
        prop_assert_eq!(mapped(&file).terms(), Ok(terms));
        let encoded = terms.encode();
        prop_assert_eq!(&file[TERMS_OFFSET..][..TERMS_SIZE], &encoded[..]);
    }

    #[test]
    fn any_bytes_are_terms_or_damage(bytes in prop::collection::vec(any::<u8>(), 0..SIZE + 64)) {
        if bytes.len() != SIZE {
            prop_assert_eq!(Terms::decode(&bytes), Err(Damage::Size));
        }
    }

    #[test]
    fn both_readers_agree_on_a_file_with_noise_in_it(
        terms in any_terms(),
        noise in prop::collection::vec((0..256_usize, any::<u8>()), 0..24),
    ) {
        let mut file = terms.file();
        for (place, byte) in noise {
            file[place] = byte;
        }
        prop_assert_eq!(Terms::decode(&file), mapped(&file).terms());
    }
}
