/* Answers each client over Multipath TCP with what it sent, and ends with its half.
 * cc serve.c -lpolypath -o serve && ./serve 0.0.0.0 7 */
#include <arpa/inet.h>
#include <polypath.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct sockaddr_in local = {.sin_family = AF_INET};
  if (argc != 3 || inet_pton(AF_INET, argv[1], &local.sin_addr) != 1) {
    fprintf(stderr, "usage: %s ADDRESS PORT\n", argv[0]);
    return 2;
  }
  local.sin_port = htons((uint16_t)atoi(argv[2]));
  /* A client that has gone is an error of write, not the end of the server. */
  signal(SIGPIPE, SIG_IGN);
  polypath_engine *engine = polypath_open("engine=kernel");
  socklen_t length = sizeof local;
  int listener = engine ? polypath_listen(engine, (struct sockaddr *)&local, length, NULL) : -1;
  if (listener < 0 || polypath_getsockname(listener, (struct sockaddr *)&local, &length) != 0) {
    fprintf(stderr, "serve: %s\n", polypath_strerror());
    return 1;
  }
  /* With port 0, the system has chosen one. */
  printf("%d\n", ntohs(local.sin_port));
  fflush(stdout);
  for (int fd; (fd = polypath_accept(listener, NULL, NULL)) >= 0; polypath_close(fd)) {
    char buffer[4096];
    ssize_t got;
    while ((got = read(fd, buffer, sizeof buffer)) > 0)
      for (ssize_t sent = 0, more; sent < got; sent += more)
        if ((more = write(fd, buffer + sent, (size_t)(got - sent))) <= 0) break;
    polypath_shutdown(fd, SHUT_WR);
  }
  fprintf(stderr, "serve: %s\n", polypath_strerror());
  return 1;
}
