/* A program of NVIDIA's runtime library. At each step it writes a line, and waits for one.
   The declarations are those of cuda_runtime_api.h, whose further headers are in other packages. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>

typedef int Code;
typedef void *Stream, *Graph, *Exec;
Code cudaMemGetInfo(size_t *, size_t *);
Code cudaMalloc(void **, size_t);
Code cudaFree(void *);
Code cudaMallocAsync(void **, size_t, Stream);
Code cudaFreeAsync(void *, Stream);
Code cudaMallocManaged(void **, size_t, unsigned);
Code cudaStreamCreate(Stream *);
Code cudaStreamSynchronize(Stream);
Code cudaStreamBeginCapture(Stream, int);
Code cudaStreamEndCapture(Stream, Graph *);
Code cudaMemsetAsync(void *, int, size_t, Stream);
Code cudaGraphInstantiate(Exec *, Graph, unsigned long long);
Code cudaGraphLaunch(Exec, Stream);
Code cudaGetLastError(void);
Code cudaDeviceReset(void);
Code cudaDeviceSynchronize(void);
Code cudaRuntimeGetVersion(int *);

static void step(const char *name, size_t value) {
  printf("%s %zu\n", name, value);
  fflush(stdout);
  char line[16];
  if (!fgets(line, sizeof line, stdin)) exit(3);
}

static void check(int line, Code code) {
  if (code != 0) {
    fprintf(stderr, "line %d: %d\n", line, code);
    exit(2);
  }
}
#define CHECK(call) check(__LINE__, call)

int main(void) {
  static void *blocks[4096];
  const size_t block = (size_t)64 << 20;
  size_t free_bytes = 0, total = 0;
  int version = 0;
  /* A hang ends the program, and the test. */
  alarm(120);
  CHECK(cudaRuntimeGetVersion(&version));
  step("version", (size_t)version);
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  step("total", total);
  step("free", free_bytes);

  size_t count = 0;
  Code code = 0;
  while (count < 4096 && (code = cudaMalloc(&blocks[count], block)) == 0) count++;
  step("blocks", count);
  step("refusal", (size_t)code);
  cudaGetLastError();
  while (count > 0) CHECK(cudaFree(blocks[--count]));
  step("freed", 0);

  step("initialised", 0);
  /* The C library signals all threads for these. */
  if (setgid(getgid()) != 0 || setuid(getuid()) != 0) return 4;
  pid_t child = fork();
  if (child == 0) _exit(0);
  if (child < 0 || waitpid(child, NULL, 0) != child) return 5;

  Stream stream;
  void *pooled, *managed, *plain;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMallocAsync(&pooled, block, stream));
  CHECK(cudaMallocManaged(&managed, block, 1));
  CHECK(cudaMalloc(&plain, block));
  CHECK(cudaStreamSynchronize(stream));
  step("kinds", 0);
  code = cudaMallocAsync(&blocks[0], (size_t)8 << 30, stream);
  step("pooled-refusal", (size_t)code);
  cudaGetLastError();

  Graph graph;
  Exec exec;
  CHECK(cudaStreamBeginCapture(stream, 0));
  CHECK(cudaMemsetAsync(plain, 1, block, stream));
  CHECK(cudaMallocAsync(&blocks[0], block, stream));
  CHECK(cudaFreeAsync(blocks[0], stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  step("launched", 0);
  CHECK(cudaFreeAsync(pooled, stream));
  CHECK(cudaFree(managed));
  CHECK(cudaFree(plain));

  CHECK(cudaDeviceReset());
  step("reset", 0);
  CHECK(cudaMalloc(&plain, block));
  CHECK(cudaDeviceSynchronize());
  step("again", 0);
  return 0;
}
