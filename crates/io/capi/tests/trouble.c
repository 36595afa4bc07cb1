/* "client ADDR PORT DEADPORT SILENT": a refused connection, one that nobody answers, and one that the peer resets, with the
 * numbers of errno that a program expects; "serve ADDR": resets one connection, then ends. ENGINE says which engine, and
 * SILENT_ENGINE the one for the address where nobody answers, if it is another. */
#include <poll.h>

#include "program.h"

static short wait_for(int fd, short events, int limit) {
  struct pollfd waiting = {.fd = fd, .events = events};
  return poll(&waiting, 1, limit) == 1 ? waiting.revents : 0;
}

int main(int argc, char **argv) {
  EXPECT(argc >= 3);
  char byte;
  polypath_engine *engine = engine_of_environment();
  if (!strcmp(argv[1], "serve")) {
    int listener = listen_at(engine, argv[2], "nonblocking");
    EXPECT(polypath_accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    tell_port(listener);
    EXPECT(wait_for(listener, POLLIN, 20000) & POLLIN);
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    int fd = polypath_accept(listener, (struct sockaddr *)&peer, &length);
    EXPECT(fd >= 0 && read(fd, &byte, 1) == 1);
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    EXPECT(polypath_close(fd) == 0 && polypath_close(listener) == 0);
    /* Its stack says goodbye to nobody else: the client ends by itself. */
    EXPECT(read(0, &byte, 1) == 0);
  } else {
    EXPECT(argc == 6);
    struct sockaddr_in dead = address_of(argv[2], argv[4]), silent = address_of(argv[5], "80"), alive = address_of(argv[2], argv[3]);
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
