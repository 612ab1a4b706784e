//! Assembly: jumps that preserve all registers, and the memory functions that compilers expect.

/// Jumps to another function with all arguments in place. The whole body of a naked function.
#[cfg(all(feature = "preload", target_arch = "x86_64"))]
macro_rules! jump {
    ($target:path) => {
        core::arch::naked_asm!("jmp {}", sym $target)
    };
}

/// As above.
#[cfg(all(feature = "preload", target_arch = "aarch64"))]
macro_rules! jump {
    ($target:path) => {
        core::arch::naked_asm!("b {}", sym $target)
    };
}

#[cfg(feature = "preload")]
pub(crate) use jump;

// The compiler calls these by name. They are hidden symbols of this library: a C library has
// several versions of some, and a program's own must not be replaced.
#[cfg(all(feature = "library", target_arch = "x86_64"))]
core::arch::global_asm!(
    ".macro octavo_begin name",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    "octavo_begin memcpy",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "octavo_begin memmove",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    // From the end if the target begins inside the source.
    "jb 2f",
    "rep movsb",
    "ret",
    "2:",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "octavo_begin memset",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "octavo_begin bcmp",
    "octavo_begin memcmp",
    "xor ecx, ecx",
    "2:",
    "cmp rcx, rdx",
    "je 3f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r8d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r8d",
    "je 2b",
    "ret",
    "3:",
    "xor eax, eax",
    "ret",
    "octavo_begin strlen",
    "xor eax, eax",
    "2:",
    "cmp byte ptr [rdi + rax], 0",
    "je 3f",
    "inc rax",
    "jmp 2b",
    "3:",
    "ret",
    ".purgem octavo_begin",
);

#[cfg(all(feature = "library", target_arch = "aarch64"))]
core::arch::global_asm!(
    ".macro octavo_begin name",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, %function",
    "\\name:",
    ".endm",
    "octavo_begin memcpy",
    "mov x3, x0",
    "2:",
    "cbz x2, 3f",
    "ldrb w4, [x1], #1",
    "strb w4, [x3], #1",
    "sub x2, x2, #1",
    "b 2b",
    "3:",
    "ret",
    "octavo_begin memmove",
    "sub x3, x0, x1",
    "cmp x3, x2",
    // From the end if the target begins inside the source.
    "b.hs memcpy",
    "2:",
    "cbz x2, 3f",
    "sub x2, x2, #1",
    "ldrb w4, [x1, x2]",
    "strb w4, [x0, x2]",
    "b 2b",
    "3:",
    "ret",
    "octavo_begin memset",
    "mov x3, x0",
    "2:",
    "cbz x2, 3f",
    "strb w1, [x3], #1",
    "sub x2, x2, #1",
    "b 2b",
    "3:",
    "ret",
    "octavo_begin bcmp",
    "octavo_begin memcmp",
    "mov x3, #0",
    "2:",
    "cmp x3, x2",
    "b.eq 3f",
    "ldrb w4, [x0, x3]",
    "ldrb w5, [x1, x3]",
    "add x3, x3, #1",
    "subs w4, w4, w5",
    "b.eq 2b",
    "mov w0, w4",
    "ret",
    "3:",
    "mov w0, #0",
    "ret",
    "octavo_begin strlen",
    "mov x1, #0",
    "2:",
    "ldrb w2, [x0, x1]",
    "cbz w2, 3f",
    "add x1, x1, #1",
    "b 2b",
    "3:",
    "mov x0, x1",
    "ret",
    ".purgem octavo_begin",
);
