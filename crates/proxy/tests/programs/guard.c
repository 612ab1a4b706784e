/* A guard, as far as a proxy needs it: hooks add 100, unknown functions are forwarded or refused. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct record {
    const char *name;
    unsigned long length;
    void *real;
};

static int told;

static void *real(const char *name)
{
    return dlsym(dlopen(REAL, RTLD_NOW | RTLD_NOLOAD), name);
}

int octavo_hook_cuInit(unsigned flags)
{
    int (*function)(unsigned) = real("cuInit");
    return function(flags) + 100;
}

#ifndef WITHOUT_ALLOC
int octavo_hook_cuMemAlloc_v2(unsigned long *place, unsigned long bytes)
{
    int (*function)(unsigned long *, unsigned long) = real("cuMemAlloc_v2");
    return function(place, bytes) + 100;
}
#endif

/* Also under its own name, which programs must not find: the driver does not have it. */
int octavo_hook_cuNotThereYet(void) { return 100; }

int guard_told(void) { return told; }

static int refuse(void) { return 801; }

/* Address to continue at. */
void *guard_unknown(struct record *record)
{
    told++;
    if (record->name[record->length] != 0)
        abort();
    if (getenv("GUARD_REFUSES"))
        return refuse;
    if (!record->real)
        record->real = real(record->name);
    return record->real;
}

#if defined(__x86_64__)
__asm__(".globl octavo_unknown_entry\n"
        ".type octavo_unknown_entry, @function\n"
        "octavo_unknown_entry:\n"
        "push %rax\n push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n"
        "sub $128, %rsp\n"
        "movups %xmm0, (%rsp)\n movups %xmm1, 16(%rsp)\n movups %xmm2, 32(%rsp)\n movups %xmm3, 48(%rsp)\n"
        "movups %xmm4, 64(%rsp)\n movups %xmm5, 80(%rsp)\n movups %xmm6, 96(%rsp)\n movups %xmm7, 112(%rsp)\n"
        "mov %r11, %rdi\n"
        "call guard_unknown@PLT\n"
        "mov %rax, %r11\n"
        "movups (%rsp), %xmm0\n movups 16(%rsp), %xmm1\n movups 32(%rsp), %xmm2\n movups 48(%rsp), %xmm3\n"
        "movups 64(%rsp), %xmm4\n movups 80(%rsp), %xmm5\n movups 96(%rsp), %xmm6\n movups 112(%rsp), %xmm7\n"
        "add $128, %rsp\n"
        "pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n pop %rax\n"
        "jmp *%r11\n");
#elif defined(__aarch64__)
__asm__(".globl octavo_unknown_entry\n"
        ".type octavo_unknown_entry, %function\n"
        "octavo_unknown_entry:\n"
        "stp x29, x30, [sp, #-16]!\n"
        "stp x0, x1, [sp, #-16]!\n stp x2, x3, [sp, #-16]!\n stp x4, x5, [sp, #-16]!\n"
        "stp x6, x7, [sp, #-16]!\n stp x8, x9, [sp, #-16]!\n"
        "stp q0, q1, [sp, #-32]!\n stp q2, q3, [sp, #-32]!\n stp q4, q5, [sp, #-32]!\n stp q6, q7, [sp, #-32]!\n"
        "mov x0, x16\n"
        "bl guard_unknown\n"
        "mov x16, x0\n"
        "ldp q6, q7, [sp], #32\n ldp q4, q5, [sp], #32\n ldp q2, q3, [sp], #32\n ldp q0, q1, [sp], #32\n"
        "ldp x8, x9, [sp], #16\n ldp x6, x7, [sp], #16\n"
        "ldp x4, x5, [sp], #16\n ldp x2, x3, [sp], #16\n ldp x0, x1, [sp], #16\n"
        "ldp x29, x30, [sp], #16\n"
        "br x16\n");
#endif
