/*
 * Preloaded into redis-server. Adds an offset, in microseconds, to the clock of the system. The
 * offset is the first 8 bytes of the file CLOCK_OFFSET_FILE, which a test changes at any time.
 * libfaketime is not used: it blocks forever in a program with jemalloc.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
  int file = open(getenv("CLOCK_OFFSET_FILE"), O_RDONLY);
  void *memory = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) abort();
  offset = memory;
}

static int64_t now_us(void) {
  struct timespec time;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &time);
  return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000 + (offset ? *offset : 0);
}

int gettimeofday(struct timeval *restrict value, void *restrict zone) {
  int64_t us = now_us();
  value->tv_sec = us / 1000000;
  value->tv_usec = us % 1000000;
  return 0;
}

int clock_gettime(clockid_t clock, struct timespec *value) {
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
    return syscall(SYS_clock_gettime, clock, value);
  int64_t us = now_us();
  value->tv_sec = us / 1000000;
  value->tv_nsec = us % 1000000 * 1000;
  return 0;
}

time_t time(time_t *value) {
  time_t seconds = now_us() / 1000000;
  if (value) *value = seconds;
  return seconds;
}
