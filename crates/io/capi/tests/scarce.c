/* "open": an engine is opened with each number of descriptors that are free;
 * "client ADDR PORT": connects until descriptors run out, which must be told at once, then once more when some are free;
 * "serve ADDR": waits for the end of one connection. ENGINE says which engine. */
#include <sys/resource.h>
#include <sys/wait.h>

#include "program.h"

/* With so many descriptors, it is opened or there are too few, and no signal ends the program. */
static int opens_with(const char *settings, int descriptors) {
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = descriptors;
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    polypath_engine *engine = polypath_open(settings);
    EXPECT(engine || errno == EMFILE);
    polypath_free(engine);
    _exit(engine ? 0 : 3);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
  EXPECT(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
  return WEXITSTATUS(status) == 0;
}

static void open_each(const char *settings) {
  int descriptors = 3;
  while (!opens_with(settings, descriptors)) EXPECT(++descriptors < 64);
  EXPECT(descriptors > 3);
}

int main(int argc, char **argv) {
  if (argc == 2) {
    EXPECT(!strcmp(argv[1], "open"));
    open_each(getenv("ENGINE"));
    printf("done\n");
    return 0;
  }
  EXPECT(argc >= 3);
  polypath_engine *engine = engine_of_environment();
  char byte;
  if (!strcmp(argv[1], "serve")) {
    int listener = listen_at(engine, argv[2], NULL);
    tell_port(listener);
    int fd = polypath_accept(listener, NULL, NULL);
    EXPECT(fd >= 0 && read(fd, &byte, 1) == 0);
    EXPECT(polypath_close(fd) == 0 && polypath_close(listener) == 0);
  } else {
    /* So much later than what is right that it is no question of the machine's speed. */
    alarm(60);
    EXPECT(argc == 4);
    struct sockaddr_in address = address_of(argv[2], argv[3]);
    struct sockaddr *generic = (struct sockaddr *)&address;
    socklen_t length = sizeof address;
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
