/* What a program may do with an engine other than free it. "exit": connects to itself, and returns from main without a
 * word; "fork": a child of fork uses the parent's engine. ENGINE says which engine. */
#include <arpa/inet.h>
#include <errno.h>
#include <polypath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                       \
  if (!(condition)) {                                                                           \
    fprintf(stderr, "line %d: %s: %s (errno %d)\n", __LINE__, #condition, polypath_strerror(), errno); \
    exit(1);                                                                                    \
  }

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  alarm(60);
  polypath_engine *engine = polypath_open(getenv("ENGINE"));
  EXPECT(engine);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(9)};
  struct sockaddr *generic = (struct sockaddr *)&address;
  if (!strcmp(argv[1], "fork")) {
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      alarm(60);
      EXPECT(polypath_connect(engine, generic, sizeof address, NULL) == -1 && errno == EINVAL);
      EXPECT(strstr(polypath_strerror(), "fork"));
      EXPECT(polypath_listen(engine, generic, sizeof address, NULL) == -1 && errno == EINVAL);
      polypath_free(engine);
      return 0;
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    int fd = polypath_connect(engine, generic, sizeof address, "nonblocking");
    EXPECT(fd >= 0 && errno == EINPROGRESS && polypath_close(fd) == 0);
    polypath_free(engine);
  }
  printf("done\n");
  return 0;
}
