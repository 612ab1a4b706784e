"""Kernels in PTX, which the driver compiles. Kernels that fail are a module of their own."""

PLAIN = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry octavo_nothing()
{
    ret;
}

// x[i] = 3 * x[i] + 1, for each i below count
.visible .entry octavo_map(.param .u64 x, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %r<7>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [x];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p ret;
    cvta.to.global.u64 %d1, %d1;
    mul.wide.u32 %d2, %r5, 4;
    add.u64 %d3, %d1, %d2;
    ld.global.u32 %r6, [%d3];
    mad.lo.u32 %r6, %r6, 3, 1;
    st.global.u32 [%d3], %r6;
    ret;
}

// The same chain of dependent operations in all threads; the first one writes the result.
.visible .entry octavo_work(.param .u64 result, .param .u32 count)
{
    .reg .pred %p<3>;
    .reg .b32 %r<6>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [result];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, 1;
again:
    mad.lo.u32 %r2, %r2, 1664525, 1013904223;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra again;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %tid.x;
    or.b32 %r5, %r3, %r4;
    setp.ne.u32 %p2, %r5, 0;
    @%p2 ret;
    cvta.to.global.u64 %d1, %d1;
    st.global.u32 [%d1], %r2;
    ret;
}

// Runs for that many nanoseconds.
.visible .entry octavo_spin(.param .u64 time)
{
    .reg .pred %p;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [time];
    mov.u64 %d2, %globaltimer;
again:
    mov.u64 %d3, %globaltimer;
    sub.u64 %d4, %d3, %d2;
    setp.lt.u64 %p, %d4, %d1;
    @%p bra again;
    ret;
}

// Writes to an address, which may be any.
.visible .entry octavo_poke(.param .u64 address)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [address];
    mov.u32 %r1, 7;
    st.u32 [%d1], %r1;
    ret;
}

// Writes a byte of each page of 4 KiB; a thread each.
.visible .entry octavo_touch(.param .u64 address, .param .u64 size)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [address];
    ld.param.u64 %d2, [size];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %d3, %r4, 4096;
    setp.ge.u64 %p, %d3, %d2;
    @%p ret;
    add.u64 %d4, %d1, %d3;
    st.u8 [%d4], %r4;
    ret;
}

// Has 1 KiB of local memory in each thread, at an index that is known only when it runs.
.visible .entry octavo_local(.param .u64 result, .param .u32 index)
{
    .local .align 4 .b8 own[1024];
    .reg .b32 %r<3>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [result];
    ld.param.u32 %r1, [index];
    mov.u64 %d2, own;
    mul.wide.u32 %d3, %r1, 4;
    add.u64 %d4, %d2, %d3;
    st.local.u32 [%d4], %r1;
    ld.local.u32 %r2, [%d2];
    cvta.to.global.u64 %d1, %d1;
    st.global.u32 [%d1], %r2;
    ret;
}
"""

FAULTS = b"""
.version 6.0
.target sm_50
.address_size 64

.global .align 1 .b8 text[8] = {102, 97, 117, 108, 116, 0, 0, 0};
.extern .func __assertfail (.param .b64 what, .param .b64 file, .param .b32 line, .param .b64 name, .param .b64 size);

.visible .entry octavo_assert()
{
    .reg .b64 %d<4>;
    mov.u64 %d1, text;
    cvta.global.u64 %d2, %d1;
    mov.u64 %d3, 1;
    {
        .param .b64 what;
        .param .b64 file;
        .param .b32 line;
        .param .b64 name;
        .param .b64 size;
        st.param.b64 [what], %d2;
        st.param.b64 [file], %d2;
        st.param.b32 [line], 1;
        st.param.b64 [name], %d2;
        st.param.b64 [size], %d3;
        call.uni __assertfail, (what, file, line, name, size);
    }
    ret;
}

.visible .entry octavo_trap()
{
    trap;
    ret;
}
"""
