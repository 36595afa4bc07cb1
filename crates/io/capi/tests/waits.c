/* Threads that wait at listeners when the engine ends: one in polypath_accept, one in poll. "serve ADDR" writes much to a
 * client, and frees the engine at once, or with LEAVES in the environment leaves that to the program's end, which with FREES comes
 * while a thread frees it. "client ADDR PORT" reads all of it. With CUTS the server writes without end, and the client frees its
 * engine meanwhile. ENGINE says which engine. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include "program.h"

#define MUCH 3000000

static void *accept_another(void *listener) {
  EXPECT(polypath_accept(*(int *)listener, NULL, NULL) == -1);
  EXPECT(errno == EINVAL && strstr(polypath_strerror(), "was freed"));
  return NULL;
}

static void *poll_for_another(void *listener) {
  struct pollfd at = {.fd = *(int *)listener, .events = POLLIN};
  EXPECT(poll(&at, 1, -1) == 1 && at.revents & POLLHUP);
  return accept_another(listener);
}

static void *accept_until_closed(void *listener) {
  EXPECT(polypath_accept(*(int *)listener, NULL, NULL) == -1);
  EXPECT(errno == EINVAL && strstr(polypath_strerror(), "was closed"));
  return NULL;
}

static void *accept_until_shut_down(void *listener) {
  EXPECT(polypath_accept(*(int *)listener, NULL, NULL) == -1);
  EXPECT(errno == EINVAL && strstr(polypath_strerror(), "shut down"));
  return NULL;
}

/* The engine lives on. What waits has a descriptor of its own, which stays open if it comes too late. */
static void close_one_that_waits(polypath_engine *engine, const char *address) {
  int listener = listen_at(engine, address, NULL), copy = dup(listener);
  pthread_t accepting;
  EXPECT(copy >= 0 && pthread_create(&accepting, NULL, accept_until_closed, &copy) == 0);
  EXPECT(polypath_close(listener) == 0 && pthread_join(accepting, NULL) == 0);
  EXPECT(polypath_accept(listener, NULL, NULL) == -1 && errno == EBADF && close(copy) == 0);
}

/* With the kernel's engine neither closing nor freeing does it. */
static void shut_down_one_that_waits(const char *address) {
  polypath_engine *kernel = polypath_open("engine=kernel");
  EXPECT(kernel);
  int listener = listen_at(kernel, address, NULL);
  pthread_t accepting;
  EXPECT(pthread_create(&accepting, NULL, accept_until_shut_down, &listener) == 0);
  EXPECT(polypath_shutdown(listener, SHUT_RDWR) == 0 && pthread_join(accepting, NULL) == 0);
  EXPECT(polypath_close(listener) == 0);
  polypath_free(kernel);
}

/* They would not be those of the connections that it accepts. */
static void refuse_settings_of_connections(polypath_engine *engine, const char *address) {
  struct sockaddr_in here = address_of(address, NULL);
  const char *given[] = {"scheduler=redundant", "congestion=reno"};
  for (int i = 0; i < 2; i++) {
    EXPECT(polypath_listen(engine, (struct sockaddr *)&here, sizeof here, given[i]) == -1 && errno == EINVAL);
    EXPECT(strstr(polypath_strerror(), "polypath_open"));
  }
}

static void *free_it(void *engine) {
  polypath_free(engine);
  return NULL;
}

static void write_much(int fd) {
  static char bytes[MUCH];
  for (size_t done = 0; done < MUCH;) {
    ssize_t wrote = write(fd, bytes + done, MUCH - done);
    EXPECT(wrote > 0);
    done += wrote;
  }
}

/* Until the peer is gone. */
static void write_without_end(int fd) {
  signal(SIGPIPE, SIG_IGN);
  while (write(fd, "x", 1) == 1) usleep(1000);
}

static void serve(polypath_engine *engine, const char *address) {
  int listener = listen_at(engine, address, NULL), other = listen_at(engine, address, NULL);
  close_one_that_waits(engine, address);
  shut_down_one_that_waits(address);
  refuse_settings_of_connections(engine, address);
  tell_port(listener);
  int fd = polypath_accept(listener, NULL, NULL);
  EXPECT(fd >= 0);
  if (getenv("CUTS")) {
    write_without_end(fd);
    return;
  }
  pthread_t accepting, polling;
  EXPECT(pthread_create(&accepting, NULL, accept_another, &listener) == 0);
  EXPECT(pthread_create(&polling, NULL, poll_for_another, &other) == 0);
  write_much(fd);
  if (getenv("LEAVES")) exit(0);
  pthread_t freeing;
  if (getenv("FREES")) {
    EXPECT(pthread_create(&freeing, NULL, free_it, engine) == 0);
    accept_another(&listener);
    exit(0);
  }
  polypath_free(engine);
  EXPECT(pthread_join(accepting, NULL) == 0 && pthread_join(polling, NULL) == 0);
  EXPECT(polypath_close(fd) == 0 && polypath_close(listener) == 0 && polypath_close(other) == 0);
}

/* Reads what never ends, and is told that this is not the end. */
static void *read_without_end(void *of) {
  int fd = *(int *)of;
  char bytes[4096];
  ssize_t got;
  while ((got = read(fd, bytes, sizeof bytes)) > 0) {}
  EXPECT(got == -1 && errno == ECONNRESET);
  return NULL;
}

static void free_while_reading(polypath_engine *engine, struct sockaddr_in from) {
  int fd = polypath_connect(engine, (struct sockaddr *)&from, sizeof from, NULL);
  char byte;
  EXPECT(fd >= 0 && read(fd, &byte, 1) == 1);
  pthread_t reading;
  EXPECT(pthread_create(&reading, NULL, read_without_end, &fd) == 0);
  polypath_free(engine);
  EXPECT(pthread_join(reading, NULL) == 0 && polypath_close(fd) == 0);
  printf("done\n");
}

/* All of it comes, and then the end. */
static void read_much(polypath_engine *engine, struct sockaddr_in from) {
  static char bytes[65536];
  int fd = polypath_connect(engine, (struct sockaddr *)&from, sizeof from, NULL);
  EXPECT(fd >= 0);
  long total = 0;
  for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) != 0; total += got) EXPECT(got > 0);
  EXPECT(total == MUCH && polypath_error(fd) == 0 && polypath_close(fd) == 0);
  polypath_free(engine);
  printf("done\n");
}

int main(int argc, char **argv) {
  EXPECT(argc >= 3);
  alarm(60);
  polypath_engine *engine = engine_of_environment();
  if (!strcmp(argv[1], "serve")) {
    serve(engine, argv[2]);
  } else {
    EXPECT(argc == 4);
    struct sockaddr_in from = address_of(argv[2], argv[3]);
    if (getenv("CUTS")) free_while_reading(engine, from);
    else read_much(engine, from);
  }
  return 0;
}
