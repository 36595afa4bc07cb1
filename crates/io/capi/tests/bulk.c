/* "client ADDR PORT BYTES": sends so many bytes while it reads them back, and prints how many subflows carried some;
 * "serve ADDR": echoes one connection. ENGINE says which engine. */
#include <net/if.h>
#include <poll.h>

#include "program.h"

static char buffer[65536];

static int serve(polypath_engine *engine, const char *address) {
  int listener = listen_at(engine, address, NULL);
  tell_port(listener);
  int fd = polypath_accept(listener, NULL, NULL);
  EXPECT(fd >= 0);
  ssize_t got;
  while ((got = read(fd, buffer, sizeof buffer)) > 0)
    for (ssize_t sent = 0, more; sent < got; sent += more) {
      more = write(fd, buffer + sent, got - sent);
      EXPECT(more > 0);
    }
  EXPECT(got == 0 && polypath_close(listener) == 0);
  return fd;
}

static char pattern(long at) { return (char)(at * 31 + at / 251); }

static int talk(polypath_engine *engine, struct sockaddr_in to, long total) {
  int fd = polypath_connect(engine, (struct sockaddr *)&to, sizeof to, "nonblocking");
  EXPECT(fd >= 0 && errno == EINPROGRESS);
  long sent = 0, received = 0;
  while (received < total) {
    struct pollfd waiting = {.fd = fd, .events = POLLIN | (sent < total ? POLLOUT : 0)};
    EXPECT(poll(&waiting, 1, 20000) == 1 && !(waiting.revents & POLLERR));
    if (waiting.revents & POLLOUT) {
      long size = total - sent < (long)sizeof buffer ? total - sent : (long)sizeof buffer;
      for (long i = 0; i < size; i++) buffer[i] = pattern(sent + i);
      ssize_t more = write(fd, buffer, size);
      EXPECT(more > 0);
      sent += more;
    }
    if (waiting.revents & POLLIN) {
      ssize_t got = read(fd, buffer, sizeof buffer);
      EXPECT(got > 0);
      for (ssize_t i = 0; i < got; i++) EXPECT(buffer[i] == pattern(received + i));
      received += got;
    }
  }
  struct polypath_info info;
  int busy = 0;
  EXPECT(polypath_info(fd, &info) == 0 && info.is_multipath);
  for (unsigned i = 0; i < info.subflow_count; i++) {
    char name[IF_NAMESIZE], wanted[IF_NAMESIZE];
    busy += info.subflows[i].bytes_acked > 100000;
    EXPECT(polypath_interface(fd, &info.subflows[i], name, sizeof name) == 0);
    EXPECT(polypath_interface(fd, &info.subflows[i], wanted, 2) == -1 && errno == ERANGE);
    EXPECT(if_nametoindex(name) != 0 && strncmp(name, "polypath", 8));
    struct sockaddr_in *local = (void *)&info.subflows[i].local, *remote = (void *)&info.subflows[i].remote;
    EXPECT(local->sin_family == AF_INET && remote->sin_family == AF_INET);
    /* Engine tun opens further ones, to addresses that it was told. */
    EXPECT(i > 0 || remote->sin_addr.s_addr == to.sin_addr.s_addr);
    /* A peer on this machine is reached by no other interface. */
    int is_here = ntohl(to.sin_addr.s_addr) == INADDR_LOOPBACK;
    EXPECT(!is_here || (!strcmp(name, "lo") && local->sin_addr.s_addr == to.sin_addr.s_addr));
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    EXPECT(polypath_getsockname(fd, (struct sockaddr *)&own, &length) == 0 && length == sizeof own);
    EXPECT(own.sin_family == AF_INET && (i > 0 || own.sin_addr.s_addr == local->sin_addr.s_addr));
  }
  printf("bytes=%ld busy=%d\n", received, busy);
  EXPECT(polypath_shutdown(fd, SHUT_WR) == 0);
  return fd;
}

int main(int argc, char **argv) {
  EXPECT(argc >= 3);
  polypath_engine *engine = engine_of_environment();
  int is_server = !strcmp(argv[1], "serve");
  EXPECT(is_server || argc == 5);
  int fd = is_server ? serve(engine, argv[2]) : talk(engine, address_of(argv[2], argv[3]), atol(argv[4]));
  if (is_server) printf("echoed\n");
  EXPECT(polypath_close(fd) == 0);
  polypath_free(engine);
  return 0;
}
