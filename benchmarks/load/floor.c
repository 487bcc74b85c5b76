// The limit for a client of Crossover's design: the same reads, stamps and pauses, in C.
//
//   floor PORT CONCURRENCY REQUESTS TOKENS FILE
//
// Keeps CONCURRENCY requests in flight until REQUESTS have been sent and answered; a millisecond of
// sleep between two rounds of reads, kernel arrival stamps (SO_TIMESTAMPNS). Bytes are kept as they
// come and read for events after the run. Writes an arrival record of each request's sending and of
// each token, and prints the CPU seconds of the run.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "arrivals.h"

enum { READ_BYTES = 16384, TICK_US = 1000 };
static const char END[] = "\r\n0\r\n\r\n";

struct piece {  // one read
  uint32_t request, bytes;
  int64_t ns;
};

static char *payloads;  // of all requests, each in a slot of PAYLOAD_BYTES
enum { PAYLOAD_BYTES = 1024 };
static uint32_t wanted, sent, answered;
static int64_t wall_offset_ns;
static struct arrivals arrivals;
static struct piece *pieces;
static size_t piece_count;
static char *bytes;
static size_t byte_count;

static void prepare(int concurrency, int tokens) {
  char prompt[601] = "", body[900];
  for (int i = 0; i < 100; i++) strcat(prompt, i ? " hello" : "hello");
  payloads = malloc((size_t)wanted * PAYLOAD_BYTES);
  pieces = malloc((size_t)wanted * (tokens + 2) * sizeof *pieces);
  bytes = malloc((size_t)wanted * (tokens + 2) * 512);
  if (!payloads || !pieces || !bytes) fail("malloc");
  for (uint32_t i = 0; i < wanted; i++) {
    int size = snprintf(body, sizeof body,
                        "{\"model\":\"truth\",\"messages\":[{\"role\":\"user\",\"content\":"
                        "\"Request floor-1-%d-%04u\\n\\n%s\"}],\"max_tokens\":%d,\"stream\":true,"
                        "\"stream_options\":{\"include_usage\":true}}",
                        concurrency, i, prompt, tokens);
    snprintf(payloads + (size_t)i * PAYLOAD_BYTES, PAYLOAD_BYTES,
             "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
             "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
             size, body);
  }
}

static void ask(int fd, uint32_t *request_of) {
  const char *payload = payloads + (size_t)sent * PAYLOAD_BYTES;
  size_t size = strlen(payload);
  request_of[fd] = sent;
  add_arrival(&arrivals, sent++, 0, clock_ns(CLOCK_MONOTONIC));
  if (send(fd, payload, size, MSG_NOSIGNAL) != (ssize_t)size) fail("send");
}

static int connect_to(int port) {
  const int on = 1;
  struct sockaddr_in server = {.sin_family = AF_INET,
                               .sin_port = htons(port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server)) fail("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  return fd;
}

static void read_one(int fd, uint32_t *request_of) {
  char *to = bytes + byte_count;
  int64_t ns;
  ssize_t got = receive(fd, to, READ_BYTES, wall_offset_ns, &ns);
  if (got <= 0) fail("the server closed a connection: recvmsg");
  pieces[piece_count++] = (struct piece){request_of[fd], got, ns};
  byte_count += got;
  size_t tail = sizeof END - 1;
  if ((size_t)got >= tail && !memcmp(to + got - tail, END, tail)) {
    answered++;
    if (sent < wanted) ask(fd, request_of);
  }
}

static void find_events(void) {
  uint32_t *events = calloc(wanted, sizeof *events);
  const char *from = bytes;
  if (!events) fail("calloc");
  for (size_t i = 0; i < piece_count; from += pieces[i++].bytes) {
    const char *at = from, *end = from + pieces[i].bytes;
    while ((at = memmem(at, end - at, "\"content\"", 9))) {
      at += 9;
      add_arrival(&arrivals, pieces[i].request, ++events[pieces[i].request], pieces[i].ns);
    }
  }
}

static double cpu_s(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
         (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int count, char **words) {
  if (count != 6) {
    fprintf(stderr, "usage: floor PORT CONCURRENCY REQUESTS TOKENS FILE\n");
    return 2;
  }
  int port = atoi(words[1]), concurrency = atoi(words[2]);
  wanted = atoi(words[3]);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  prepare(concurrency, atoi(words[4]));

  double cpu_before_s = cpu_s();
  int poller = epoll_create1(0), fds[concurrency];
  uint32_t request_of[concurrency + 64];
  wall_offset_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
  for (int i = 0; i < concurrency; i++) {
    fds[i] = connect_to(port);
    if (fds[i] >= concurrency + 64) fail("more files are open than expected");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
    epoll_ctl(poller, EPOLL_CTL_ADD, fds[i], &event);
  }
  for (int i = 0; i < concurrency; i++) ask(fds[i], request_of);
  while (answered < wanted) {
    struct epoll_event events[1024];
    int ready = epoll_wait(poller, events, 1024, 0);
    for (int i = 0; i < ready; i++) read_one(events[i].data.fd, request_of);
    usleep(TICK_US);
  }
  printf("%.6f\n", cpu_s() - cpu_before_s);
  find_events();
  write_arrivals(&arrivals, words[5]);
  return 0;
}
