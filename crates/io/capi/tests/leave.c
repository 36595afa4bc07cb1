/* What a program may do with an engine other than free it. "exit": connects to itself, and returns from main without a
 * word; "fork": a child of fork uses the parent's engine. ENGINE says which engine. */
#include <sys/wait.h>

#include "program.h"

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  alarm(60);
  polypath_engine *engine = engine_of_environment();
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
