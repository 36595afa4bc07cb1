/* Sends a line to a server over Multipath TCP, ends its half, and prints the answer.
 * cc get.c -lpolypath -o get && ./get 192.0.2.1 7 hello */
#include <arpa/inet.h>
#include <polypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s ADDRESS PORT TEXT\n", argv[0]);
    return 2;
  }
  struct sockaddr_in remote = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
  if (inet_pton(AF_INET, argv[1], &remote.sin_addr) != 1) {
    fprintf(stderr, "%s: expected an IPv4 address\n", argv[1]);
    return 2;
  }
  polypath_engine *engine = polypath_open("engine=kernel");
  int fd = engine ? polypath_connect(engine, (struct sockaddr *)&remote, sizeof remote, NULL) : -1;
  /* Early: once both sides have ended there is no connection to ask about. */
  struct polypath_info info;
  if (fd >= 0 && polypath_info(fd, &info) == 0)
    fprintf(stderr, "multipath=%u subflows=%u\n", info.is_multipath, info.subflow_count);
  size_t length = strlen(argv[3]);
  if (fd < 0 || write(fd, argv[3], length) != (ssize_t)length || polypath_shutdown(fd, SHUT_WR) != 0) {
    fprintf(stderr, "get: %s\n", polypath_strerror());
    return 1;
  }
  char buffer[4096];
  ssize_t got;
  while ((got = read(fd, buffer, sizeof buffer)) > 0) fwrite(buffer, 1, (size_t)got, stdout);
  polypath_close(fd);
  polypath_free(engine);
  return got == 0 ? 0 : 1;
}
