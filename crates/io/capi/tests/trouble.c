/* "client ADDR PORT DEADPORT SILENT": a refused connection, one that nobody answers, and one that the peer resets, with the
 * numbers of errno that a program expects; "serve ADDR": resets one connection, then ends. ENGINE says which engine, and
 * SILENT_ENGINE the one for the address where nobody answers, if it is another. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <polypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(condition)                                                                       \
  if (!(condition)) {                                                                           \
    fprintf(stderr, "line %d: %s: %s (errno %d)\n", __LINE__, #condition, polypath_strerror(), errno); \
    exit(1);                                                                                    \
  }

static struct sockaddr_in at(const char *address, const char *port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
  EXPECT(inet_pton(AF_INET, address, &to.sin_addr) == 1);
  return to;
}

static short wait_for(int fd, short events, int limit) {
  struct pollfd waiting = {.fd = fd, .events = events};
  return poll(&waiting, 1, limit) == 1 ? waiting.revents : 0;
}

int main(int argc, char **argv) {
  EXPECT(argc >= 3);
  char byte;
  polypath_engine *engine = polypath_open(getenv("ENGINE"));
  EXPECT(engine);
  if (!strcmp(argv[1], "serve")) {
    struct sockaddr_in here = at(argv[2], "0");
    socklen_t length = sizeof here;
    int listener = polypath_listen(engine, (struct sockaddr *)&here, length, "nonblocking");
    EXPECT(listener >= 0 && polypath_getsockname(listener, (struct sockaddr *)&here, &length) == 0);
    EXPECT(polypath_accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    EXPECT(wait_for(listener, POLLIN, 20000) & POLLIN);
    struct sockaddr_storage peer;
    length = sizeof peer;
    int fd = polypath_accept(listener, (struct sockaddr *)&peer, &length);
    EXPECT(fd >= 0 && read(fd, &byte, 1) == 1);
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    EXPECT(polypath_close(fd) == 0 && polypath_close(listener) == 0);
    /* Its stack says goodbye to nobody else: the client ends by itself. */
    EXPECT(read(0, &byte, 1) == 0);
  } else {
    EXPECT(argc == 6);
    struct sockaddr_in dead = at(argv[2], argv[4]), silent = at(argv[5], "80"), alive = at(argv[2], argv[3]);
    socklen_t length = sizeof dead;
    EXPECT(polypath_connect(engine, (struct sockaddr *)&dead, length, NULL) == -1 && errno == ECONNREFUSED);
    EXPECT(strstr(polypath_strerror(), "refused"));
    int fd = polypath_connect(engine, (struct sockaddr *)&dead, length, "nonblocking");
    EXPECT(fd >= 0 && errno == EINPROGRESS);
    EXPECT(wait_for(fd, POLLOUT, 20000) & POLLERR);
    EXPECT(polypath_error(fd) == ECONNREFUSED);
    EXPECT(polypath_close(fd) == 0);
    const char *other = getenv("SILENT_ENGINE");
    polypath_engine *into_silence = other ? polypath_open(other) : engine;
    EXPECT(into_silence);
    EXPECT(polypath_connect(into_silence, (struct sockaddr *)&silent, length, "timeout_ms=200") == -1 && errno == ETIMEDOUT);
    fd = polypath_connect(into_silence, (struct sockaddr *)&silent, length, "nonblocking,timeout_ms=600");
    EXPECT(fd >= 0 && errno == EINPROGRESS && polypath_error(fd) == 0);
    EXPECT(wait_for(fd, POLLOUT, 100) == 0); /* not before it is connected */
    EXPECT(polypath_getpeername(fd, (struct sockaddr *)&dead, &length) == -1 && errno == ENOTCONN);
    EXPECT(wait_for(fd, POLLOUT, 20000) & POLLERR);
    EXPECT(polypath_error(fd) == ETIMEDOUT);
    EXPECT(polypath_close(fd) == 0);
    if (other) polypath_free(into_silence);
    fd = polypath_connect(engine, (struct sockaddr *)&alive, length, NULL);
    EXPECT(fd >= 0 && write(fd, "x", 1) == 1);
    EXPECT(read(fd, &byte, 1) == -1 && errno == ECONNRESET);
    EXPECT(polypath_error(fd) == ECONNRESET);
    EXPECT(polypath_close(fd) == 0);
  }
  polypath_free(engine);
  printf("done\n");
  return 0;
}
