/* A driver, as far as a proxy needs it. */
#include <stdarg.h>

struct large {
    long words[8];
};

int cuInit(unsigned flags) { return (int)flags; }
int cuMemAlloc_v2(unsigned long *place, unsigned long bytes) { *place = bytes; return 0; }
int cuDeviceGetCount(void) { return 42; }
int cuDriverVersion = 13050;

/* Functions that are newer than the guard. */

long cuMemAllocEverywhere(long a, long b, long c, long d, long e, long f, double g, double h, double i, double j,
                          double k, double l, double m, double n, long o, long p, double q, long r)
{
    const double all[] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r};
    long sum = 0;
    for (int place = 0; place < 18; place++)
        sum = sum * 3 + (long)(all[place] * 4);
    return sum;
}

double cuLaunchVarious(int count, ...)
{
    double sum = 0;
    va_list list;
    va_start(list, count);
    for (int place = 0; place < count; place++)
        sum = sum * 2 + va_arg(list, double);
    va_end(list);
    return sum;
}

struct large cuMemAllocLarge(struct large of, int times)
{
    for (int place = 0; place < 8; place++)
        of.words[place] *= times;
    return of;
}

int cuLaunchTwice(void) { return 5; }
