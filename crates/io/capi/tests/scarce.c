/* "client ADDR PORT": connects until descriptors run out, which must be told at once, then once more when some are free;
 * "serve ADDR": waits for the end of one connection. ENGINE says which engine. */
#include <arpa/inet.h>
#include <errno.h>
#include <polypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXPECT(condition)                                                                       \
  if (!(condition)) {                                                                           \
    fprintf(stderr, "line %d: %s: %s (errno %d)\n", __LINE__, #condition, polypath_strerror(), errno); \
    exit(1);                                                                                    \
  }

int main(int argc, char **argv) {
  EXPECT(argc >= 3);
  polypath_engine *engine = polypath_open(getenv("ENGINE"));
  EXPECT(engine);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(argc > 3 ? atoi(argv[3]) : 0)};
  EXPECT(inet_pton(AF_INET, argv[2], &address.sin_addr) == 1);
  struct sockaddr *generic = (struct sockaddr *)&address;
  socklen_t length = sizeof address;
  char byte;
  if (!strcmp(argv[1], "serve")) {
    int listener = polypath_listen(engine, generic, length, NULL);
    EXPECT(listener >= 0 && polypath_getsockname(listener, generic, &length) == 0);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int fd = polypath_accept(listener, NULL, NULL);
    EXPECT(fd >= 0 && read(fd, &byte, 1) == 0);
    EXPECT(polypath_close(fd) == 0 && polypath_close(listener) == 0);
  } else {
    /* So much later than what is right that it is no question of the machine's speed. */
    alarm(60);
    int first = polypath_connect(engine, generic, length, NULL);
    EXPECT(first >= 0);
    /* Whatever each connection needs: it must fail at one of them, with 0 to 3 too few. */
    for (int room = 0; room < 4; room++) {
      int highest = dup(first);
      EXPECT(highest >= 0 && close(highest) == 0);
      struct rlimit before, limit;
      EXPECT(getrlimit(RLIMIT_NOFILE, &before) == 0);
      limit = before;
      limit.rlim_cur = highest + 6 + room;
      EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
      int open[16], count = 0;
      while (count < 16 && (open[count] = polypath_connect(engine, generic, length, NULL)) >= 0) count++;
      EXPECT(count < 16 && errno == EMFILE);
      while (count > 0) EXPECT(polypath_close(open[--count]) == 0);
      EXPECT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    }
    int again = polypath_connect(engine, generic, length, NULL);
    EXPECT(again >= 0 && polypath_close(again) == 0 && polypath_close(first) == 0);
  }
  polypath_free(engine);
  printf("done\n");
  return 0;
}
