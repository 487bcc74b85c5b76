// A server that knows when it sent what: streams chat completions at set times and, when it is
// terminated, writes an arrival record of each request and each token's send.
//
//   truth_server TTFT_MS ITL_MS FILE     prints its port, then serves 127.0.0.1 until SIGTERM
// A request's stamp is the kernel's of its last bytes, so that it does not depend on when this
// program got to read them.
//
// A token is one event, one HTTP chunk and one send(); its stamp is taken just before. One thread
// sends whatever is due from a heap of due times, and looks for requests in between.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "arrivals.h"

enum { REQUEST_BYTES = 1 << 16, DEFAULT_TOKENS = 64, SENDS_BETWEEN_POLLS = 64 };

struct connection {
  int fd;
  char request[REQUEST_BYTES + 1];
  size_t request_bytes;
  uint32_t number;      // of the request that is being answered
  uint32_t sent, wanted;  // tokens of its answer
  int64_t due_ns;       // of the next token
  int waiting;          // is in the heap
};

static int64_t ttft_ns, itl_ns;
static int poller;
static uint32_t requests;
static struct arrivals truth;
static volatile sig_atomic_t terminated;

// ---------------------------------------------------------------- connections by due time

static struct connection **heap;
static size_t heap_size, heap_room;

static void push(struct connection *c) {
  if (heap_size == heap_room) {
    heap_room = heap_room ? 2 * heap_room : 1024;
    heap = realloc(heap, heap_room * sizeof *heap);
    if (!heap) fail("realloc");
  }
  size_t at = heap_size++;
  for (; at && heap[(at - 1) / 2]->due_ns > c->due_ns; at = (at - 1) / 2)
    heap[at] = heap[(at - 1) / 2];
  heap[at] = c;
  c->waiting = 1;
}

static struct connection *pop(void) {
  struct connection *first = heap[0], *last = heap[--heap_size];
  size_t at = 0, child;
  for (; (child = 2 * at + 1) < heap_size; at = child) {
    if (child + 1 < heap_size && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
    if (heap[child]->due_ns >= last->due_ns) break;
    heap[at] = heap[child];
  }
  heap[at] = last;
  first->waiting = 0;
  return first;
}

// ---------------------------------------------------------------- what is sent

// Returns 0 if the client is gone. A client that lets a whole send buffer fill up is no client
// that could be measured.
static int send_all(struct connection *c, const char *bytes, size_t count) {
  ssize_t sent = send(c->fd, bytes, count, MSG_NOSIGNAL);
  if (sent == (ssize_t)count) return 1;
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return 0;
  fail("a client does not read: send");
  return 0;
}

static void answer(struct connection *c, const char *status, const char *json) {
  char text[1024];
  int count = snprintf(text, sizeof text,
                       "HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\n\r\n%s",
                       status, strlen(json), json);
  send_all(c, text, count);
}

static size_t add_chunk(char *to, const char *data) {
  return sprintf(to, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
}

// The next token, with the head of the answer before the first and its tail behind the last.
static void send_token(struct connection *c) {
  static const char head[] =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  char text[2048], data[512];
  size_t count = 0;
  int last = ++c->sent == c->wanted;
  if (c->sent == 1) count = stpcpy(text, head) - text;
  sprintf(data,
          "{\"id\":\"chatcmpl-%08u\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,"
          "\"model\":\"truth\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" hello\"},"
          "\"logprobs\":null,\"finish_reason\":%s}]}",
          c->number, last ? "\"length\"" : "null");
  count += add_chunk(text + count, data);
  int64_t now = clock_ns(CLOCK_MONOTONIC);
  add_arrival(&truth, c->number, c->sent, now);
  int is_there = send_all(c, text, count);
  if (is_there && last) {
    sprintf(data,
            "{\"id\":\"chatcmpl-%08u\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,"
            "\"model\":\"truth\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,"
            "\"completion_tokens\":%u,\"total_tokens\":%u}}",
            c->number, c->wanted, 100 + c->wanted);
    count = add_chunk(text, data);
    count += add_chunk(text + count, "[DONE]");
    count = stpcpy(text + count, "0\r\n\r\n") - text;
    is_there = send_all(c, text, count);
  }
  if (is_there && !last) {
    c->due_ns += itl_ns;
    push(c);
  }
}

// ---------------------------------------------------------------- what is asked

static uint32_t number_after(const char *text, const char *key, uint32_t otherwise) {
  const char *found = strstr(text, key);
  if (!found) return otherwise;
  found += strlen(key);
  found += strspn(found, "\": ");
  return *found >= '0' && *found <= '9' ? strtoul(found, NULL, 10) : otherwise;
}

// "Request chat-1-100-0042" begins the prompts that Crossover sends.
static uint32_t request_number(const char *body) {
  const char *line = strstr(body, "\"Request ");
  requests++;
  if (!line) return requests;
  const char *end = line + strcspn(line, "\\");
  while (end > line && end[-1] >= '0' && end[-1] <= '9') end--;
  return strtoul(end, NULL, 10);
}

static void take(struct connection *c, const char *head, const char *body, int64_t arrived_ns) {
  if (!strncmp(head, "POST ", 5) && strstr(head, "/chat/completions ")) {
    c->number = request_number(body);
    c->sent = 0;
    c->wanted = number_after(body, "\"max_completion_tokens\"",
                             number_after(body, "\"max_tokens\"", DEFAULT_TOKENS));
    add_arrival(&truth, c->number, 0, arrived_ns);
    c->due_ns = clock_ns(CLOCK_MONOTONIC) + ttft_ns;
    push(c);
  } else if (strstr(head, "/models "))
    answer(c, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\"}]}");
  else if (!strncmp(head, "GET /health ", 12))
    answer(c, "200 OK", "{}");
  else
    answer(c, "404 Not Found", "{\"error\":{\"message\":\"no such route\"}}");
}

static void drop(struct connection *c) {
  close(c->fd);
  c->fd = -1;
  if (!c->waiting) free(c);
}

static void serve(struct connection *c) {
  int64_t arrived_ns;
  ssize_t got = receive(c->fd, c->request + c->request_bytes, REQUEST_BYTES - c->request_bytes,
                        clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC), &arrived_ns);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) {
    drop(c);
    return;
  }
  c->request_bytes += got;
  c->request[c->request_bytes] = 0;
  char *body = strstr(c->request, "\r\n\r\n");
  if (body) {
    *body = 0;
    const char *length = strcasestr(c->request, "\r\ncontent-length:");
    size_t wanted = length ? strtoul(length + 17, NULL, 10) : 0;
    size_t whole = body + 4 - c->request + wanted;
    if (c->request_bytes >= whole) {
      take(c, c->request, body + 4, arrived_ns);
      c->request_bytes = 0;
      return;
    }
    *body = '\r';
  }
  if (c->request_bytes == REQUEST_BYTES) {
    fprintf(stderr, "a request of more than %d bytes\n", REQUEST_BYTES);
    exit(1);
  }
}

static void accept_all(int listener) {
  const int on = 1;
  int fd;
  // accepted sockets have the listener's option SO_TIMESTAMPNS
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct connection *c = calloc(1, sizeof *c);
    if (!c) fail("calloc");
    c->fd = fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  }
  if (errno != EAGAIN) fail("accept");
}

// ---------------------------------------------------------------- the program

static void terminate(int signal) {
  (void)signal;
  terminated = 1;
}

static int listen_anywhere(void) {
  const int on = 1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 4096) ||
      getsockname(fd, (struct sockaddr *)&address, &size))
    fail("listen");
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  return fd;
}

static void wait_for(int64_t ns, int listener, const sigset_t *mask) {
  struct epoll_event events[512];
  struct timespec timeout = {ns / 1000000000, ns % 1000000000};
  int count = epoll_pwait2(poller, events, 512, ns < 0 ? NULL : &timeout, mask);
  for (int i = 0; i < count; i++)
    if (events[i].data.ptr)
      serve(events[i].data.ptr);
    else
      accept_all(listener);
}

int main(int count, char **words) {
  if (count != 4) {
    fprintf(stderr, "usage: truth_server TTFT_MS ITL_MS FILE\n");
    return 2;
  }
  ttft_ns = atof(words[1]) * 1e6;
  itl_ns = atof(words[2]) * 1e6;
  prctl(PR_SET_TIMERSLACK, 1);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  sigset_t stop, during_wait;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_BLOCK, &stop, &during_wait);
  signal(SIGTERM, terminate);

  poller = epoll_create1(0);
  int listener = listen_anywhere();
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);

  while (!terminated) {
    int64_t left = heap_size ? heap[0]->due_ns - clock_ns(CLOCK_MONOTONIC) : -1;
    wait_for(heap_size && left < 0 ? 0 : left, listener, &during_wait);
    for (int i = 0; i < SENDS_BETWEEN_POLLS && heap_size; i++) {
      if (heap[0]->due_ns > clock_ns(CLOCK_MONOTONIC)) break;
      struct connection *c = pop();
      if (c->fd < 0)
        free(c);
      else
        send_token(c);
    }
  }
  write_arrivals(&truth, words[3]);
  return 0;
}
