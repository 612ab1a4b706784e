/* Loops over calls of the CUDA driver, for which Python is too slow. Each returns nanoseconds, or 0 after a failed call or
   two seconds of waiting. Functions of the driver come as addresses, so that a process can time two versions of one. */
#define _GNU_SOURCE
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int (*GraphLaunch)(void *, void *);
typedef int (*Write)(void *, uint64_t, uint64_t, unsigned);
typedef int (*Record)(void *, void *);
typedef int (*Allocate)(uint64_t *, size_t);
typedef int (*Free)(uint64_t);
typedef int (*AllocateAsync)(uint64_t *, size_t, void *);
typedef int (*FreeAsync)(uint64_t, void *);
typedef int (*Info)(size_t *, size_t *);

static const uint64_t MAX_WAIT = 2000000000;

/* A stream whose work is marked: the GPU writes the number of the last finished launch to a word of the host. */
struct Queue {
  Launch launch;
  GraphLaunch graph_launch;
  Write write;
  Record record;
  void *function, *stream, *graph, *event;
  void **params;
  unsigned grid, block;
  uint64_t word_on_gpu;
  volatile uint64_t *word;
  uint64_t issued, written;
};

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int launch(struct Queue *queue) {
  queue->issued++;
  if (queue->graph) return queue->graph_launch(queue->graph, queue->stream);
  return queue->launch(queue->function, queue->grid, 1, 1, queue->block, 1, 1, 0, queue->stream, queue->params, NULL);
}

static int mark(struct Queue *queue) {
  if (queue->written == queue->issued) return 0;
  queue->written = queue->issued;
  return queue->write(queue->stream, queue->word_on_gpu, queue->issued, 0);
}

/* Waits until at most `most` launches are in flight. */
static int wait_for(struct Queue *queue, uint64_t most) {
  uint64_t begun = 0;
  for (unsigned turns = 0; queue->issued - *queue->word > most; turns++) {
    if (turns % 1024 != 1023) continue;
    if (begun == 0) begun = now();
    if (now() - begun > MAX_WAIT) return 1;
  }
  return 0;
}

uint64_t launches(Launch function_launch, void *function, unsigned count) {
  uint64_t begun = now();
  int code = 0;
  for (unsigned i = 0; i < count; i++) code |= function_launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  return code ? 0 : now() - begun;
}

uint64_t allocations(Allocate allocate, Free release, size_t bytes, unsigned count) {
  uint64_t begun = now(), pointer;
  for (unsigned i = 0; i < count; i++)
    if (allocate(&pointer, bytes) || release(pointer)) return 0;
  return now() - begun;
}

uint64_t async_allocations(AllocateAsync allocate, FreeAsync release, size_t bytes, unsigned count) {
  uint64_t begun = now(), pointer;
  for (unsigned i = 0; i < count; i++)
    if (allocate(&pointer, bytes, NULL) || release(pointer, NULL)) return 0;
  return now() - begun;
}

uint64_t infos(Info info, unsigned count) {
  uint64_t begun = now();
  size_t free_bytes, total;
  int code = 0;
  for (unsigned i = 0; i < count; i++) code |= info(&free_bytes, &total);
  return code ? 0 : now() - begun;
}

/* Launches with a mark after each `every`-th: a write by the GPU, or an event. Without marks if `every` is 0. */
uint64_t marked_launches(struct Queue *queue, unsigned count, unsigned every, int by_event) {
  uint64_t begun = now();
  int code = 0;
  for (unsigned i = 1; i <= count; i++) {
    code |= launch(queue);
    if (every && i % every == 0) code |= by_event ? queue->record(queue->event, queue->stream) : mark(queue);
  }
  return code ? 0 : now() - begun;
}

/* Time until all that was launched is done, as the word shows it. */
uint64_t drain(struct Queue *queue) {
  uint64_t begun = now();
  if (mark(queue) || wait_for(queue, 0)) return 0;
  return now() - begun;
}

/* Launches with at most `cap` in flight, until all are done. */
uint64_t capped_launches(struct Queue *queue, unsigned count, unsigned cap, unsigned every) {
  uint64_t begun = now();
  for (unsigned i = 1; i <= count; i++) {
    if (wait_for(queue, cap - 1) || launch(queue)) return 0;
    if (i % every == 0 && mark(queue)) return 0;
  }
  return drain(queue) ? now() - begun : 0;
}

/* As above from a moment to another, and without the drain. With a `lease`, time is divided into leases, and each `of`-th one is
   this process's, from `turn` on: it launches in those alone, and is drained at their end. Returns how many were finished then. */
uint64_t tenant(struct Queue *queue, uint64_t from, uint64_t until, unsigned cap, unsigned every, uint64_t lease, unsigned turn,
                unsigned of) {
  uint64_t before = queue->issued;
  while (now() < from) sched_yield();
  for (uint64_t time = now(); time < until; time = now()) {
    if (lease && (time - from) / lease % of != turn) {
      if (drain(queue) == 0 && queue->issued != *queue->word) return 0;
      continue;
    }
    if (wait_for(queue, cap - 1) || launch(queue)) return 0;
    if ((queue->issued - before) % every == 0 && mark(queue)) return 0;
  }
  uint64_t done = *queue->word;
  return done > before ? done - before : 0;
}
