//! The kernels of the test, in PTX, which the driver compiles for any GPU since Maxwell.
//!
//! The first line is for the simulated driver: it computes modules that begin so, and no others (`docs/design/lab.md`).

/// Threads of a block.
pub(super) const BLOCK_THREADS: u32 = 256;
/// Rows and columns of the matrices.
pub(super) const MATRIX_SIDE: usize = 32;
/// Pairs of matrices. The kernel takes them in turn.
pub(super) const MATRIX_SETS: usize = 8;

/// Registers and first instructions of the kernels over memory: the word's number goes to `%i`, the number of threads to `%stride`.
macro_rules! over_words {
    () => {
        "
    .reg .pred %p, %is_walk, %is_hash;
    .reg .b32 %block, %threads, %thread, %blocks, %kind, %shift;
    .reg .b64 %start, %words, %origin, %seed, %invert, %i, %stride, %t, %a, %one, %walk, %h, %v, %place;
    ld.param.u64 %start, [start];
    ld.param.u64 %words, [words];
    ld.param.u64 %origin, [origin];
    ld.param.u32 %kind, [kind];
    ld.param.u64 %seed, [seed];
    ld.param.u64 %invert, [invert];
    cvta.to.global.u64 %start, %start;
    setp.eq.u32 %is_walk, %kind, 1;
    setp.eq.u32 %is_hash, %kind, 2;
    mov.u64 %one, 1;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %i, %block, %threads;
    cvt.u64.u32 %t, %thread;
    add.u64 %i, %i, %t;
    mul.wide.u32 %stride, %blocks, %threads;
"
    };
}

/// The word that belongs to number `%i` goes to `%v`, its address to `%place`. [`Pattern::word`](super::patterns::Pattern::word) is the
/// same in Rust.
macro_rules! word {
    () => {
        "
    shl.b64 %t, %i, 3;
    add.u64 %place, %start, %t;
    add.u64 %a, %origin, %t;
    shr.u64 %t, %a, 3;
    add.u64 %t, %t, %seed;
    and.b64 %t, %t, 63;
    cvt.u32.u64 %shift, %t;
    shl.b64 %walk, %one, %shift;
    xor.b64 %h, %a, %seed;
    mul.lo.u64 %h, %h, 0x9E3779B97F4A7C15;
    shr.u64 %t, %h, 32;
    xor.b64 %h, %h, %t;
    mul.lo.u64 %h, %h, 0xD6E8FEB86659FD93;
    shr.u64 %t, %h, 32;
    xor.b64 %h, %h, %t;
    selp.b64 %v, %walk, %a, %is_walk;
    selp.b64 %v, %h, %v, %is_hash;
    xor.b64 %v, %v, %invert;
"
    };
}

/// One step of a product of a row and a column, at these distances in bytes.
macro_rules! step {
    ($row:literal, $column:literal) => {
        concat!(
            "    ld.global.u32 %x, [%row+",
            $row,
            "];\n",
            "    ld.global.u32 %y, [%column+",
            $column,
            "];\n",
            "    fma.rn.f32 %product, %x, %y, %product;\n",
            "    mad.lo.u32 %sum, %x, %y, %sum;\n",
        )
    };
}

/// `octavo_verify_fill` writes a pattern. `octavo_verify_check` reads it, adds the words that differ to the first word of `result`, and
/// keeps the first of them: address, expected and found word.
///
/// `octavo_verify_multiply` multiplies matrices, in whole and in binary fractions, and compares with `expected` products. It counts
/// products that differ and keeps the first: multiprocessor, element, expected and found value. Each multiprocessor leaves a mark in `seen`.
pub(super) const KERNELS: &str = concat!(
    "// octavo: computed by the simulated driver
.version 6.0
.target sm_50
.address_size 64

.visible .entry octavo_verify_fill(.param .u64 start, .param .u64 words, .param .u64 origin, .param .u32 kind, .param .u64 seed, .param .u64 invert)
{",
    over_words!(),
    "again:
    setp.ge.u64 %p, %i, %words;
    @%p ret;",
    word!(),
    "    st.global.u64 [%place], %v;
    add.u64 %i, %i, %stride;
    bra again;
}

.visible .entry octavo_verify_check(.param .u64 start, .param .u64 words, .param .u64 origin, .param .u32 kind, .param .u64 seed, .param .u64 invert, .param .u64 result)
{
    .reg .b64 %result, %found, %before;
    ld.param.u64 %result, [result];
    cvta.to.global.u64 %result, %result;",
    over_words!(),
    "again:
    setp.ge.u64 %p, %i, %words;
    @%p ret;",
    word!(),
    "    ld.global.u64 %found, [%place];
    setp.eq.u64 %p, %found, %v;
    @%p bra next;
    atom.global.add.u64 %before, [%result], 1;
    setp.ne.u64 %p, %before, 0;
    @%p bra next;
    st.global.u64 [%result+8], %place;
    st.global.u64 [%result+16], %v;
    st.global.u64 [%result+24], %found;
next:
    add.u64 %i, %i, %stride;
    bra again;
}

.visible .entry octavo_verify_multiply(.param .u64 matrices, .param .u32 first, .param .u32 rounds, .param .u64 result, .param .u64 seen)
{
    .reg .pred %p;
    .reg .b32 %first, %rounds, %round, %thread, %unit, %element, %part, %k, %x, %y, %product, %sum, %expected;
    .reg .b64 %matrices, %result, %seen, %base, %row, %column, %t, %before;
    ld.param.u64 %matrices, [matrices];
    ld.param.u32 %first, [first];
    ld.param.u32 %rounds, [rounds];
    ld.param.u64 %result, [result];
    ld.param.u64 %seen, [seen];
    cvta.to.global.u64 %matrices, %matrices;
    cvta.to.global.u64 %result, %result;
    cvta.to.global.u64 %seen, %seen;
    mov.u32 %thread, %tid.x;
    mov.u32 %unit, %smid;
    mul.wide.u32 %t, %unit, 4;
    add.u64 %t, %seen, %t;
    mov.u32 %part, 1;
    st.global.u32 [%t], %part;
    mov.u32 %round, 0;
next_round:
    add.u32 %part, %round, %first;
    and.b32 %part, %part, 7;
    mul.wide.u32 %t, %part, 12288;
    add.u64 %base, %matrices, %t;
    mov.u32 %element, %thread;
next_element:
    shr.u32 %part, %element, 5;
    mul.wide.u32 %t, %part, 128;
    add.u64 %row, %base, %t;
    and.b32 %part, %element, 31;
    mul.wide.u32 %t, %part, 4;
    add.u64 %column, %base, %t;
    mov.u32 %product, 0;
    mov.u32 %sum, 0;
    mov.u32 %k, 4;
next_steps:
",
    step!("0", "4096"),
    step!("4", "4224"),
    step!("8", "4352"),
    step!("12", "4480"),
    step!("16", "4608"),
    step!("20", "4736"),
    step!("24", "4864"),
    step!("28", "4992"),
    "    add.u64 %row, %row, 32;
    add.u64 %column, %column, 1024;
    sub.u32 %k, %k, 1;
    setp.ne.u32 %p, %k, 0;
    @%p bra next_steps;
    xor.b32 %sum, %sum, %product;
    mul.wide.u32 %t, %element, 4;
    add.u64 %t, %base, %t;
    ld.global.u32 %expected, [%t+8192];
    setp.eq.u32 %p, %expected, %sum;
    @%p bra matches;
    atom.global.add.u64 %before, [%result], 1;
    setp.ne.u64 %p, %before, 0;
    @%p bra matches;
    st.global.u32 [%result+8], %unit;
    st.global.u32 [%result+12], %element;
    st.global.u32 [%result+16], %expected;
    st.global.u32 [%result+20], %sum;
matches:
    add.u32 %element, %element, 256;
    setp.lt.u32 %p, %element, 1024;
    @%p bra next_element;
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, %rounds;
    @%p bra next_round;
    ret;
}
\0"
);
