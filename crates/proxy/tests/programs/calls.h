/* Functions of a driver that programs call. */
struct large {
    long words[8];
};

typedef int init(unsigned);
typedef int alloc(unsigned long *, unsigned long);
typedef int count(void);
typedef long everywhere(long, long, long, long, long, long, double, double, double, double, double, double, double,
                        double, long, long, double, long);
typedef double various(int, ...);
typedef struct large large(struct large, int);
typedef int twice(void);

#define EVERYWHERE 1, 2, 3, 4, 5, 6, 7.25, 8.25, 9.25, 10.25, 11.25, 12.25, 13.25, 14.25, 15, 16, 17.25, 18
