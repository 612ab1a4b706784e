// A program that uses the driver. It reads one command per line on standard input and answers each with a line on
// standard output: the driver's status, then the result.
//
// Its argument selects the lookup of the driver's functions:
//   linked    by the dynamic linker (built with the driver as a dependency)
//   dlsym     by dlopen and dlsym
//   versioned by dlvsym, which finds nothing since the driver has no versions, then dlsym
//   proc      by cuGetProcAddress, which comes from dlsym
//   default   by dlsym(RTLD_DEFAULT) after a global dlopen
//   walk      by reading the loaded driver's symbol table; cuInit by dlsym
//   own       by dlmopen, in a separate namespace

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef RTLD_DEEPBIND // musl has none
#define RTLD_DEEPBIND 0
#endif

static const char *mode;
static void *library;

#ifdef LINKED
extern int cuInit(unsigned);
extern int cuDeviceGetUuid_v2(void *, int);
extern int cuDeviceTotalMem_v2(size_t *, int), cuMemGetInfo_v2(size_t *, size_t *);
extern int cuCtxSetCurrent(void *), cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int);
extern int cuDevicePrimaryCtxReset_v2(int), cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *);
extern int cuMemAlloc_v2(uint64_t *, size_t), cuMemAllocManaged(uint64_t *, size_t, unsigned), cuMemFree_v2(uint64_t);
extern int cuMemAllocPitch_v2(uint64_t *, size_t *, size_t, size_t, unsigned);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
#define OWN(name) {#name, name}
static const struct { const char *name; void *function; } linked[] = {
    OWN(cuInit), OWN(cuDeviceGetUuid_v2), OWN(cuDeviceTotalMem_v2), OWN(cuMemGetInfo_v2), OWN(cuCtxSetCurrent),
    OWN(cuDevicePrimaryCtxRetain), OWN(cuDevicePrimaryCtxRelease_v2), OWN(cuDevicePrimaryCtxReset_v2),
    OWN(cuCtxCreate_v2), OWN(cuCtxDestroy_v2), OWN(cuMemAlloc_v2), OWN(cuMemAllocManaged), OWN(cuMemFree_v2),
    OWN(cuMemAllocPitch_v2), OWN(cuLaunchKernel),
};
#endif

struct search { const char *name; void *found; };

static int walk(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    // The driver's own file.
    if (!strstr(info->dlpi_name, "libcuda.so") || (strstr(info->dlpi_name, "/lib/") && access("octavo/proxied", F_OK) == 0)) return 0;
    const ElfW(Sym) *symbols = 0;
    const char *strings = 0;
    const uint32_t *hash = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            for (const ElfW(Dyn) *entry = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); entry->d_tag; entry++) {
                // glibc writes addresses into its table, musl leaves offsets.
                ElfW(Addr) place = entry->d_un.d_ptr + (entry->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr : 0);
                if (entry->d_tag == DT_SYMTAB) symbols = (void *)place;
                if (entry->d_tag == DT_STRTAB) strings = (void *)place;
                if (entry->d_tag == DT_HASH) hash = (void *)place;
            }
    if (!hash) return 0;
    for (uint32_t i = 1; i < hash[1]; i++)
        if (symbols[i].st_shndx && !strcmp(strings + symbols[i].st_name, search->name)) {
            search->found = (void *)(info->dlpi_addr + symbols[i].st_value);
            return 1;
        }
    return 0;
}

static void *by_proc(const char *name) {
    static int (*ask)(const char *, void **, int, uint64_t, unsigned *);
    if (!ask) ask = dlsym(library, "cuGetProcAddress_v2");
    char base[64];
    snprintf(base, sizeof base, "%s", name);
    char *version = strstr(base, "_v2");
    if (version) *version = 0;
    void *function = 0;
    unsigned found;
    if (ask(base, &function, 13000, 0, &found) || !function) return dlsym(library, name);
    return function;
}

static void *get(const char *name) {
#ifdef LINKED
    for (size_t i = 0; i < sizeof linked / sizeof *linked; i++)
        if (!strcmp(linked[i].name, name)) return linked[i].function;
#endif
    void *function = 0;
    if (!strcmp(mode, "proc")) function = by_proc(name);
    else if (!strcmp(mode, "default")) function = dlsym(RTLD_DEFAULT, name);
#ifdef __GLIBC__
    else if (!strcmp(mode, "versioned")) {
        function = dlvsym(library, name, "CUDA_1");
        if (!function) function = dlsym(library, name);
    }
#endif
    else if (!strcmp(mode, "walk") && strcmp(name, "cuInit")) {
        struct search search = {name, 0};
        dl_iterate_phdr(walk, &search);
        function = search.found;
    } else function = dlsym(library, name);
    if (!function) { printf("no %s\n", name); fflush(stdout); exit(1); }
    return function;
}

#define CALL(name, ...) ((int (*)())get(name))(__VA_ARGS__)

static void leave(void) { CALL("cuDevicePrimaryCtxRelease_v2", 0); }

static uint64_t pointers[1 << 16];
static int pointer_count;
static void *contexts[64];
static int context_count;

static double nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int open_files(int from, int to) {
    int count = 0;
    for (int i = from; i < to; i++) count += fcntl(i, F_GETFD) >= 0;
    return count;
}
static int low_files, high_files;

static void *close_all(void *nothing) {
    for (;;) for (int i = 3; i < 1100; i++) close(i);
    return nothing;
}

static long storm(unsigned seed, long rounds, size_t limit) {
    // Random allocations and frees; returns the number of allocations.
    int (*allocate)(uint64_t *, size_t) = get("cuMemAlloc_v2");
    int (*release)(uint64_t) = get("cuMemFree_v2");
    uint64_t held[64] = {0};
    long granted = 0;
    for (long i = 0; i < rounds; i++) {
        int place = rand_r(&seed) % 64;
        if (held[place]) { release(held[place]); held[place] = 0; continue; }
        size_t bytes = ((size_t)rand_r(&seed) % (limit >> 20) + 1) << 18;
        if (allocate(&held[place], bytes) == 0) granted++; else held[place] = 0;
    }
    for (int i = 0; i < 64; i++) if (held[i]) release(held[i]);
    return granted;
}

static void *storm_thread(void *seed) {
    void *context;
    CALL("cuDevicePrimaryCtxRetain", &context, 0);
    CALL("cuCtxSetCurrent", context);
    return (void *)storm((unsigned)(uintptr_t)seed, 4000, (size_t)8 << 30);
}

static void *by_name(const char *name) {
    void *function = NULL;
    unsigned found;
    CALL("cuGetProcAddress_v2", name, &function, 13000, (uint64_t)0, &found);
    return function;
}

static int answer(char *line) {
    char word[64] = "";
    unsigned long a = 0, b = 0;
    int device = 0;
    sscanf(line, "%63s %lu %lu", word, &a, &b);
    device = (int)a;
    if (!strcmp(word, "init")) printf("%d\n", CALL("cuInit", 0));
    else if (!strcmp(word, "retain")) {
        void *context = 0;
        int status = CALL("cuDevicePrimaryCtxRetain", &context, device);
        if (!status) status = CALL("cuCtxSetCurrent", context);
        printf("%d\n", status);
    } else if (!strcmp(word, "release")) printf("%d\n", CALL("cuDevicePrimaryCtxRelease_v2", device));
    else if (!strcmp(word, "reset")) printf("%d\n", CALL("cuDevicePrimaryCtxReset_v2", device));
    else if (!strcmp(word, "create")) {
        int status = CALL("cuCtxCreate_v2", &contexts[context_count], 0, device);
        if (!status) context_count++;
        printf("%d\n", status);
    } else if (!strcmp(word, "destroy")) printf("%d\n", CALL("cuCtxDestroy_v2", contexts[a]));
    else if (!strcmp(word, "alloc") || !strcmp(word, "managed")) {
        int status = *word == 'a' ? CALL("cuMemAlloc_v2", &pointers[pointer_count], a)
                                  : CALL("cuMemAllocManaged", &pointers[pointer_count], a, 1);
        printf("%d %d\n", status, status ? -1 : pointer_count++);
    } else if (!strcmp(word, "pitch")) {
        size_t pitch;
        int status = CALL("cuMemAllocPitch_v2", &pointers[pointer_count], &pitch, a, b, 4);
        printf("%d %d\n", status, status ? -1 : pointer_count++);
    } else if (!strcmp(word, "free")) printf("%d\n", CALL("cuMemFree_v2", pointers[a]));
    else if (!strcmp(word, "info")) {
        size_t left = 0, total = 0;
        int status = CALL("cuMemGetInfo_v2", &left, &total);
        printf("%d %zu %zu\n", status, left, total);
    } else if (!strcmp(word, "total")) {
        size_t total = 0;
        int status = CALL("cuDeviceTotalMem_v2", &total, device);
        printf("%d %zu\n", status, total);
    } else if (!strcmp(word, "launch")) printf("%d\n", CALL("cuLaunchKernel", 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    else if (!strcmp(word, "graph")) printf("%d\n", CALL("cuGraphLaunch", 0, 0));
    else if (!strcmp(word, "launched")) printf("0 %ld\n", *(long *)get("launched"));
    else if (!strcmp(word, "novel") || !strcmp(word, "novel-by-name")) {
        // Calls functions that no guard knows, found as exports or by cuGetProcAddress.
        void *(*found)(const char *) = word[5] ? by_name : get;
        long (*allocate)(long, long, long, long, long, long, long) = found("cuMemNovelAlloc");
        int (*launch)(double, double) = found("cuLaunchNovelKernel");
        if (!allocate || !launch) puts("500");
        else printf("0 %ld %d\n", allocate(1, 2, 3, 4, 5, 6, 7), launch(4, 2));
    }
    else if (!strcmp(word, "ask")) {
        // ask <version> <flags> <name>: the export at the returned address, if any.
        char name[64] = "", versioned[80];
        sscanf(line, "%*s %*u %*u %63s", name);
        void *function = (void *)-1;
        unsigned found = 9;
        int status = CALL("cuGetProcAddress_v2", name, &function, (int)a, (uint64_t)b, &found);
        const char *endings[] = {"", "_v2", "_v3", "_ptsz", "_v2_ptsz"};
        const char *is = "other";
        if (!function) is = "null";
        else for (int i = 0; i < 5; i++) {
            snprintf(versioned, sizeof versioned, "octavo_hook_%s%s", name, endings[i]);
            if (dlsym(library, versioned) == function) is = strdup(versioned);
        }
        printf("%d %u %s\n", status, found, is);
    } else if (!strcmp(word, "rejoin")) {
        // rejoin: retains the context of GPU 0, which ends between the guard's charge and the driver call.
        void *context;
        *(void (**)(void))dlsym(library, "before_retain") = leave;
        printf("%d\n", CALL("cuDevicePrimaryCtxRetain", &context, 0));
    } else if (!strcmp(word, "constructor")) {
        // constructor <library>: loads one that calls cuInit while it is loaded, and on another thread.
        char path[4096] = "", address[32];
        sscanf(line, "%*s %4095s", path);
        snprintf(address, sizeof address, "%p", get("cuInit"));
        setenv("CALL", address, 1);
        setenv("CALLED", "nothing", 1);
        puts(dlopen(path, RTLD_NOW) ? getenv("CALLED") : dlerror());
    } else if (!strcmp(word, "fork")) {
        // The child prints one line for each of the following commands, which are separated by ';'.
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            char *rest = line + 5, *next;
            pointer_count = 0;
            while (rest && *rest) {
                if ((next = strchr(rest, ';'))) *next++ = 0;
                answer(rest);
                rest = next;
            }
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        printf("forked %d\n", status);
    } else if (!strcmp(word, "exec")) {
        // Executes another program, which reads the next commands.
        printf("0\n");
        fflush(stdout);
        execl("/proc/self/exe", "program", mode, (char *)0);
    } else if (!strcmp(word, "spawn")) {
        // As the C library starts programs: the child shares this process's memory until exec.
        pid_t child = vfork();
        if (!child) { execl("/bin/true", "true", (char *)0); _exit(1); }
        int status;
        waitpid(child, &status, 0);
        printf("%d\n", status);
    } else if (!strcmp(word, "idle")) {
        // A child that does not use the driver, and outlives its parent.
        pid_t child = fork();
        if (!child) { close(0); close(1); close(2); sleep(30); _exit(0); }
        printf("0 %d\n", child);
    } else if (!strcmp(word, "clone")) {
        // As above, created without the C library.
        long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!child) { close(0); close(1); close(2); sleep(30); _exit(0); }
        printf("0 %ld\n", child);
    } else if (!strcmp(word, "storm")) printf("0 %ld\n", storm((unsigned)a, (long)b, (size_t)8 << 30));
    else if (!strcmp(word, "threads")) {
        pthread_t threads[16];
        long granted = 0;
        for (unsigned long i = 0; i < a; i++) pthread_create(&threads[i], 0, storm_thread, (void *)(i + 1));
        for (unsigned long i = 0; i < a; i++) { void *part; pthread_join(threads[i], &part); granted += (long)part; }
        printf("0 %ld\n", granted);
    } else if (!strcmp(word, "close")) {
        // Closes all files, like daemons.
        for (int i = 3; i < 4096; i++) close(i);
        printf("0\n");
    } else if (!strcmp(word, "closing")) {
        // A thread that keeps closing files.
        pthread_t thread;
        printf("%d\n", pthread_create(&thread, 0, close_all, 0));
    } else if (!strcmp(word, "write")) {
        // write <share's state file>: a tenant that overwrites it.
        char path[512];
        sscanf(line, "%*s %511s", path);
        int file = open(path, O_WRONLY);
        printf("%d\n", file >= 0 && pwrite(file, "garbage!", 8, 0) == 8 ? 0 : -1);
        close(file);
    } else if (!strcmp(word, "pause")) {
        sleep(2);
        printf("0\n");
    } else if (!strcmp(word, "uuid")) {
        unsigned char uuid[16];
        printf("%d ", CALL("cuDeviceGetUuid_v2", uuid, device));
        for (int i = 0; i < 16; i++) printf("%02x", uuid[i]);
        printf("\n");
    } else if (!strcmp(word, "cut")) {
        // cut <file> <bytes>
        char path[512];
        sscanf(line, "%*s %511s %lu", path, &a);
        printf("%d\n", truncate(path, (off_t)a));
    } else if (!strcmp(word, "fill")) {
        // fill <state file> <offset> <count>: holds the locks of all slots.
        char path[512];
        sscanf(line, "%*s %511s %lu %lu", path, &a, &b);
        int file = open(path, O_RDWR);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)a, .l_len = (off_t)b};
        printf("%d\n", fcntl(file, F_OFD_SETLK, &lock));
    } else if (!strcmp(word, "plugin")) {
        // plugin <path> <bytes>: allocates in a library with RTLD_DEEPBIND.
        char path[512];
        sscanf(line, "%*s %511s %lu", path, &a);
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (!plugin) { printf("%s\n", dlerror()); return 0; }
        printf("%d\n", ((int (*)(size_t))dlsym(plugin, "plugin_allocate"))(a));
    } else if (!strcmp(word, "next")) {
        // The next function in the search order.
        printf("0 %s\n", dlsym(RTLD_NEXT, "cuMemAlloc_v2") ? "found" : "nothing");
    } else if (!strcmp(word, "has")) {
        // has <name>: whether the driver's handle and RTLD_DEFAULT have it.
        char name[64] = "";
        sscanf(line, "%*s %63s", name);
        printf("%d %d\n", dlsym(library, name) != 0, dlsym(RTLD_DEFAULT, name) != 0);
    } else if (!strcmp(word, "reload")) {
        printf("%d\n", dlclose(library));
        library = dlopen("libcuda.so.1", RTLD_NOW);
    } else if (!strcmp(word, "time")) {
        // time <0 launch, 1 alloc and free> <rounds>: nanoseconds of processor time per call.
        int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) = get("cuLaunchKernel");
        int (*allocate)(uint64_t *, size_t) = get("cuMemAlloc_v2");
        int (*release)(uint64_t) = get("cuMemFree_v2");
        double begin = nanoseconds();
        for (unsigned long i = 0; i < b; i++) {
            uint64_t pointer;
            if (a == 0) launch(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
            else if (allocate(&pointer, 1 << 20) == 0) release(pointer);
        }
        printf("0 %.1f\n", (nanoseconds() - begin) / b);
    } else if (!strcmp(word, "descriptors")) {
        // Descriptors that are open now and were not at the start.
        printf("0 %d %d\n", open_files(3, 900) - low_files, open_files(900, 4096) - high_files);
    } else printf("what is %s?\n", word);
    return 0;
}

int main(int count, char **arguments) {
    low_files = open_files(3, 900);
    high_files = open_files(900, 4096);
    mode = count > 1 ? arguments[1] : "dlsym";
#ifdef __GLIBC__
    if (!strcmp(mode, "own")) library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    else
#endif
    if (strcmp(mode, "linked")) library = dlopen("libcuda.so.1", RTLD_NOW | (strcmp(mode, "default") ? 0 : RTLD_GLOBAL));
    if (!library && strcmp(mode, "linked")) { printf("%s\n", dlerror()); return 1; }
    setvbuf(stdout, 0, _IOLBF, 0);
    // An executed program must find the unread input.
    setvbuf(stdin, 0, _IONBF, 0);
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        answer(line);
        fflush(stdout);
    }
    return 0;
}
