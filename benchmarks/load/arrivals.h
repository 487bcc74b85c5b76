// The record that server and clients write: what happened to a request, and when.
#ifndef ARRIVALS_H
#define ARRIVALS_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

struct arrival {
  uint32_t request;  // the number at the end of the prompt's first line, else the order of arrival
  uint32_t event;    // 0: the request; 1, 2, …: its tokens
  int64_t ns;        // CLOCK_MONOTONIC
};

struct arrivals {
  struct arrival *records;
  size_t count, room;
};

static inline int64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void fail(const char *what) {
  perror(what);
  exit(1);
}

// recvmsg with the kernel's arrival stamp, moved to CLOCK_MONOTONIC; without a stamp, the time now.
static inline ssize_t receive(int fd, void *to, size_t room, int64_t wall_offset_ns, int64_t *ns) {
  char control[64];
  struct iovec into = {to, room};
  struct msghdr message = {
      .msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
  struct cmsghdr *first = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (first) {
    struct timespec stamp;
    memcpy(&stamp, CMSG_DATA(first), sizeof stamp);
    *ns = stamp.tv_sec * 1000000000LL + stamp.tv_nsec - wall_offset_ns;
  } else
    *ns = clock_ns(CLOCK_MONOTONIC);
  return got;
}

static inline void add_arrival(struct arrivals *all, uint32_t request, uint32_t event, int64_t ns) {
  if (all->count == all->room) {
    all->room = all->room ? 2 * all->room : 1 << 20;
    all->records = realloc(all->records, all->room * sizeof *all->records);
    if (!all->records) fail("realloc");
  }
  all->records[all->count++] = (struct arrival){request, event, ns};
}

static inline void write_arrivals(const struct arrivals *all, const char *path) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(all->records, sizeof *all->records, all->count, file) != all->count ||
      fclose(file))
    fail(path);
}

#endif
