/* "get ADDR PORT": the blocking calls; "poll ADDR PORT": the nonblocking ones; "serve ADDR": echoes one connection.
 * Prints what came and "multipath=N subflows=N"; a failed expectation prints its line and ends with 1. */
#include <netinet/tcp.h>
#include <poll.h>

#include "program.h"

static void wait_for(int fd, short events) {
  struct pollfd waiting = {.fd = fd, .events = events};
  EXPECT(poll(&waiting, 1, 20000) == 1);
}

int main(int argc, char **argv) {
  EXPECT(argc >= 3);
  int is_server = !strcmp(argv[1], "serve"), is_poll = !strcmp(argv[1], "poll");
  EXPECT(polypath_open("engine=quic") == NULL && errno == EINVAL);
  EXPECT(polypath_open("engine=udp,judge_paths=yes") == NULL && errno == EINVAL);
  EXPECT(polypath_open("engine=udp,interface=lo,interface=lo") == NULL && strstr(polypath_strerror(), "lo is named twice"));
  EXPECT(polypath_open("engine=udp,interface=lo,backup=lo") == NULL && errno == EINVAL && strstr(polypath_strerror(), "'backup=lo'"));
  EXPECT(polypath_open("engine=udp,interface=none0") == NULL && errno == EINVAL && strstr(polypath_strerror(), "none0"));
  EXPECT(polypath_engine_name(NULL) == NULL && errno == EINVAL);
  EXPECT(polypath_engine_reason(NULL) == NULL && errno == EINVAL);
  EXPECT(polypath_connect(NULL, NULL, 0, NULL) == -1 && errno == EINVAL);
  if (geteuid() != 0) {
    polypath_engine *best = polypath_open("engine=auto");
    EXPECT(best && strcmp(polypath_engine_name(best), "tun") && *polypath_engine_reason(best));
    polypath_free(best);
  }
  const char *choice = getenv("ENGINE");
  int is_kernel = !choice;
  polypath_engine *engine = polypath_open(choice);
  EXPECT(engine && !strcmp(polypath_engine_name(engine), is_kernel ? "kernel" : "udp") && !*polypath_engine_reason(engine));
  struct sockaddr_in address = address_of(argv[2], argc > 3 ? argv[3] : NULL);
  struct sockaddr *generic = (struct sockaddr *)&address;
  socklen_t length = sizeof address;
  char buffer[256];
  ssize_t got, total = 0;
  int fd;
  struct polypath_info info;
  if (is_server) {
    int listener = listen_at(engine, argv[2], NULL);
    struct sockaddr_in taken;
    EXPECT(polypath_getsockname(listener, (struct sockaddr *)&taken, &length) == 0);
    EXPECT(polypath_listen(engine, (struct sockaddr *)&taken, length, NULL) == -1 && errno == EADDRINUSE);
    EXPECT(strstr(polypath_strerror(), argv[2]));
    tell_port(listener);
    wait_for(listener, POLLIN);
    fd = polypath_accept(listener, NULL, NULL);
    EXPECT(fd >= 0 && polypath_close(listener) == 0);
    EXPECT(polypath_info(fd, &info) == 0 && info.subflow_count >= 1);
  } else {
    /* The kernel's Multipath TCP takes any name by itself. */
    EXPECT(polypath_connect(engine, generic, length, "congestion=nosuch") == -1 && errno == EINVAL);
    EXPECT(strstr(polypath_strerror(), "nosuch") && strstr(polypath_strerror(), "reno"));
    fd = polypath_connect(engine, generic, length, is_poll ? "nonblocking" : "congestion=reno");
    EXPECT(fd >= 0);
    if (is_poll) {
      EXPECT(errno == EINPROGRESS);
      wait_for(fd, POLLOUT);
      EXPECT(polypath_error(fd) == 0);
    } else {
      EXPECT(errno == 0);
    }
    if (!is_poll && is_kernel) {
      errno = EXDEV;
      EXPECT(polypath_set(fd, "congestion", "cubic") == 0 && errno == EXDEV);
      EXPECT(polypath_set(fd, "congestion", "nosuch") == -1 && errno == EINVAL);
      EXPECT(polypath_set(fd, "colour", "red") == -1 && errno == ENOPROTOOPT);
    }
    EXPECT(polypath_getpeername(fd, generic, &length) == 0 && ntohs(address.sin_port) == atoi(argv[3]));
    EXPECT(polypath_info(fd, &info) == 0 && info.subflow_count >= 1);
    /* The kernel's Multipath TCP has the last one only. */
    int given[] = {TCP_USER_TIMEOUT, 30000, TCP_KEEPIDLE, 7, TCP_KEEPCNT, 3, TCP_NODELAY, 1}, told;
    for (int i = is_kernel ? 6 : 0; i < 8; i += 2) {
      socklen_t size = sizeof told;
      EXPECT(polypath_setsockopt(fd, IPPROTO_TCP, given[i], &given[i + 1], sizeof told) == 0);
      EXPECT(polypath_getsockopt(fd, IPPROTO_TCP, given[i], &told, &size) == 0 && told == given[i + 1]);
    }
    EXPECT(polypath_setsockopt(fd, IPPROTO_TCP, 9999, given, sizeof told) == -1 && errno == ENOPROTOOPT);
    if (!is_kernel) {
      EXPECT(polypath_setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == -1 && errno == ENOPROTOOPT);
      char name[16];
      socklen_t length = sizeof name;
      EXPECT(polypath_getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == -1 && errno == ENOPROTOOPT);
    }
    EXPECT(write(fd, "question", 8) == 8);
    EXPECT(polypath_shutdown(fd, SHUT_WR) == 0);
  }
  EXPECT(info.subflows[0].remote.ss_family == AF_INET || !is_kernel);
  do {
    if (is_poll) wait_for(fd, POLLIN);
    got = read(fd, buffer + total, sizeof buffer - 1 - total);
    EXPECT(got >= 0);
    total += got;
  } while (got > 0);
  if (is_server) EXPECT(write(fd, buffer, total) == total);
  buffer[total] = 0;
  printf("%s multipath=%u subflows=%u\n", buffer, info.is_multipath, info.subflow_count);
  EXPECT(polypath_close(fd) == 0);
  polypath_free(engine);
  return 0;
}
