// A library that uses the GPU while it is loaded, on two threads: the first one holds the dynamic linker's lock.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int (*call)(unsigned);

static void *other(void *unused) {
    call(0);
    return unused;
}

__attribute__((constructor)) static void begin(void) {
    // Ends the program if the two wait for each other.
    alarm(20);
    call = (int (*)(unsigned))strtoul(getenv("CALL"), 0, 16);
    pthread_t thread;
    pthread_create(&thread, 0, other, 0);
    usleep(200000);
    char status[16];
    snprintf(status, sizeof status, "%d", call(0));
    setenv("CALLED", status, 1);
    alarm(0);
}
